/**
 * Reads a Dockerfile as steps of a build. An instruction that the steps cannot carry out is refused with the line and a remedy,
 * and never left out silently. One that means nothing to a sandbox, such as CMD, becomes a note in the log.
 */
import { AppError, MAX_BUILD_STEPS } from '@coppice/contract';
import { refuseLine, splitInstructions, type Instruction } from './dockerfile-lines.ts';
import { escapeWord, expandWord, splitWords, WordError } from './dockerfile-words.ts';
import { findFault, isProxy, namesDirectory, SEVERAL_SOURCES, type PlannedStep } from './planned-step.ts';

/** Arguments before FROM. */
const MAX_GLOBALS = 1024;
const MAX_GLOBAL_BYTES = 256 << 10;
const MAX_PROXY_BYTES = 32 << 10;
/** Of the name of an argument, in the log. */
const MAX_SHOWN_NAME = 64;

const PLATFORM = 'linux/amd64';
/** Arguments that BuildKit sets. As there, an ARG without a default makes one known to the steps. */
const PLATFORM_ARGUMENTS: Readonly<Record<string, string>> = {
  BUILDPLATFORM: PLATFORM,
  BUILDOS: 'linux',
  BUILDARCH: 'amd64',
  BUILDVARIANT: '',
  TARGETPLATFORM: PLATFORM,
  TARGETOS: 'linux',
  TARGETARCH: 'amd64',
  TARGETVARIANT: '',
};

export interface Dockerfile {
  from: string;
  steps: PlannedStep[];
  /** Instructions without effect, for the log. */
  notes: string[];
  escape: string;
  /** Of RUN, besides what ARG declares. */
  proxies: Record<string, string>;
}

interface Reading {
  escape: string;
  buildArgs: Readonly<Record<string, string>>;
  /** Names that an ARG has. */
  declared: Set<string>;
  /** Arguments from before FROM. */
  globals: Map<string, string>;
  globalBytes: number;
  from: string | undefined;
  steps: PlannedStep[];
  notes: string[];
}

type Reader = (reading: Reading, instruction: Instruction) => void;

const NO_EFFECT: Readonly<Record<string, string>> = {
  CMD: 'a sandbox starts no program of its image',
  ENTRYPOINT: 'a sandbox starts no program of its image',
  LABEL: 'images have no labels here; give labels to sandboxes',
  EXPOSE: 'every port of a sandbox can be reached',
  HEALTHCHECK: 'a sandbox has no health check',
  STOPSIGNAL: 'a sandbox starts no program of its image',
  MAINTAINER: 'images have no labels here',
  VOLUME: 'a directory stays a directory; use a disk for data that outlives sandboxes',
};

const READERS: Readonly<Record<string, Reader>> = {
  FROM: readFrom,
  ARG: readArg,
  RUN: readRun,
  COPY: readCopy,
  ADD: readAdd,
  ENV: readEnv,
  WORKDIR: (reading, { line, rest }) => addStep(reading, { line, workdir: requireText(line, rest) }),
  USER: (reading, { line, rest }) => addStep(reading, { line, user: requireText(line, rest) }),
};

/** Throws `invalid_request` that names the line. */
export function parseDockerfile(text: string, buildArgs: Readonly<Record<string, string>> = {}): Dockerfile {
  const { instructions, escape } = splitInstructions(text);
  const reading: Reading = {
    escape,
    buildArgs,
    declared: new Set(),
    globals: new Map(Object.entries(PLATFORM_ARGUMENTS)),
    globalBytes: 0,
    from: undefined,
    steps: [],
    notes: [],
  };
  for (const instruction of instructions) {
    const { keyword, line } = instruction;
    if (reading.from === undefined && keyword !== 'FROM' && keyword !== 'ARG')
      throw refuseLine(line, `${keyword} comes before FROM; begin with FROM`);
    const reason = NO_EFFECT[keyword];
    const read = READERS[keyword];
    if (reason !== undefined) reading.notes.push(`line ${line}: ${keyword} has no effect: ${reason}`);
    else if (read === undefined)
      throw refuseLine(line, `${keyword} is not supported; write it as RUN, COPY, ENV, WORKDIR or USER`);
    else locate(line, () => read(reading, instruction));
  }
  const { from, steps, notes } = reading;
  if (from === undefined) throw refuseLine(1, 'there is no FROM; begin with FROM and a pinned image');
  return { from, steps, notes: [...notes, ...noteUnused(reading)], escape, proxies: readProxies(buildArgs) };
}

/** Values may be secrets; names suffice. */
function noteUnused({ buildArgs, declared }: Reading): string[] {
  const unused = Object.keys(buildArgs).filter((name) => !declared.has(name) && !isProxy(name));
  if (unused.length === 0) return [];
  const names = unused.map((name) => name.slice(0, MAX_SHOWN_NAME)).join(', ');
  return [`build_args: no ARG declares ${names}, so they have no effect`];
}

function readProxies(buildArgs: Readonly<Record<string, string>>): Record<string, string> {
  const proxies = Object.entries(buildArgs).filter(([name]) => isProxy(name));
  const bytes = proxies.reduce((sum, [, value]) => sum + Buffer.byteLength(value), 0);
  if (bytes <= MAX_PROXY_BYTES) return Object.fromEntries(proxies);
  throw new AppError(
    'invalid_request',
    `build_args: the values of ${proxies.map(([name]) => name).join(', ')} have more than ${MAX_PROXY_BYTES} bytes; shorten them`,
  );
}

/** Adds the line to an error in a word. */
function locate<T>(line: number, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw error instanceof WordError ? refuseLine(line, error.message) : error;
  }
}

/** Adds a step, or refuses what can be known to be wrong before its variables have values. */
function addStep(reading: Reading, step: PlannedStep & { line: number }): void {
  const { line, arg, copy, env, workdir, user } = step;
  const { steps } = reading;
  if (steps.length >= MAX_BUILD_STEPS)
    throw refuseLine(line, `more than ${MAX_BUILD_STEPS} steps; join some of them, commands with &&`);
  if (arg?.raw !== undefined) preview(reading, arg.raw);
  const fault =
    arg === undefined
      ? findFault({
          ...step,
          ...(env !== undefined && { env: mapValues(env, (value) => preview(reading, value)) }),
          ...(copy !== undefined && {
            copy: mapValues(copy, (value, field) => preview(reading, value, field === 'mode' ? '644' : 'x')),
          }),
          ...(workdir !== undefined && { workdir: preview(reading, workdir) }),
          ...(user !== undefined && { user: preview(reading, user) }),
        })
      : undefined;
  if (fault !== undefined) throw refuseLine(line, fault);
  steps.push(step);
}

/** Without a variable a word is what it will be. Otherwise only its syntax is checked. */
function preview({ escape }: Reading, word: string, placeholder = 'x'): string {
  const text = expandWord(word, { escape, lookup: () => undefined });
  return word.includes('$') ? placeholder : text;
}

function mapValues<T extends Record<string, string | undefined>>(
  values: T,
  map: (value: string, name: string) => string,
): T {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, value === undefined ? value : map(value, name)]),
  ) as T;
}

function readFrom(reading: Reading, { line, rest }: Instruction): void {
  if (reading.from !== undefined)
    throw refuseLine(
      line,
      'a second FROM: only one stage is supported; build the first stage as an image of its own',
    );
  const { flags, text } = splitFlags(line, rest);
  const expand = (word: string): string =>
    expandWord(word, { escape: reading.escape, lookup: (name) => reading.globals.get(name) });
  const platform = expand(flags.get('platform') ?? PLATFORM);
  refuseFlags(line, flags, ['platform']);
  if (platform !== PLATFORM)
    throw refuseLine(line, `--platform=${platform}: sandboxes here are ${PLATFORM}; remove it`);
  const [image = '', as, , ...more] = splitWords(text, reading.escape);
  if (image === '' || more.length > 0 || (as !== undefined && as.toUpperCase() !== 'AS'))
    throw refuseLine(line, 'write FROM and one image');
  if (image === 'scratch') throw refuseLine(line, 'scratch has no shell for the steps; begin with an image');
  reading.from = expand(image);
}

function readArg(reading: Reading, { line, rest }: Instruction): void {
  for (const word of splitWords(requireText(line, rest), reading.escape)) {
    const equals = word.indexOf('=');
    const name = equals === -1 ? word : word.slice(0, equals);
    if (!isVariable(name)) throw refuseLine(line, 'write ARG NAME or ARG NAME=default');
    reading.declared.add(name);
    const given = Object.hasOwn(reading.buildArgs, name) ? reading.buildArgs[name] : undefined;
    const raw = equals === -1 ? undefined : word.slice(equals + 1);
    if (reading.from === undefined) setGlobal(reading, line, { name, value: given, raw });
    else {
      const standard = raw === undefined ? reading.globals.get(name) : undefined;
      addStep(reading, { line, arg: { name, value: given ?? standard, raw } });
    }
  }
}

function setGlobal(
  reading: Reading,
  line: number,
  { name, value: given, raw }: NonNullable<PlannedStep['arg']>,
): void {
  const { globals, escape } = reading;
  const lookup = (asked: string): string | undefined => globals.get(asked);
  const value = given ?? (raw === undefined ? undefined : expandWord(raw, { escape, lookup }));
  if (value === undefined) return;
  reading.globalBytes += Buffer.byteLength(value) - Buffer.byteLength(globals.get(name) ?? '');
  globals.set(name, value);
  if (globals.size > MAX_GLOBALS || reading.globalBytes > MAX_GLOBAL_BYTES)
    throw refuseLine(
      line,
      `the arguments before FROM are more than ${MAX_GLOBALS}, or have more than ${MAX_GLOBAL_BYTES} bytes; shorten them`,
    );
}

function readRun(reading: Reading, { line, rest, document }: Instruction): void {
  if (document !== undefined)
    return addStep(reading, {
      line,
      run: requireText(line, document),
      ...(document.startsWith('#!') && { isScript: true }),
    });
  if (/^--\w/u.test(rest))
    throw refuseLine(line, `${rest.split(/\s/u, 1)[0]}: flags of RUN are not supported; remove it`);
  addStep(reading, { line, run: readJson(rest) ?? requireText(line, rest) });
}

function readCopy(reading: Reading, instruction: Instruction): void {
  const { line, keyword } = instruction;
  const { flags, paths } = readPaths(reading, instruction);
  if (flags.has('from'))
    throw refuseLine(
      line,
      '--from: only files of the context can be copied; build the other stage as an image of its own',
    );
  refuseFlags(line, flags, ['chown', 'chmod', 'link']);
  const to = paths.at(-1);
  if (paths.length < 2 || to === undefined)
    throw refuseLine(line, `write ${keyword}, one or more sources, and a target`);
  const hasVariable = to.includes('$');
  if (paths.length > 2 && !hasVariable && !namesDirectory(preview(reading, to)))
    throw refuseLine(line, SEVERAL_SOURCES);
  const [owner, mode] = [flags.get('chown'), flags.get('chmod')];
  for (const from_path of paths.slice(0, -1))
    addStep(reading, {
      line,
      copy: {
        from_path,
        to,
        ...(owner !== undefined && { owner }),
        ...(mode !== undefined && { mode }),
      },
      ...(keyword === 'ADD' && { isAdd: true }),
      ...(paths.length > 2 && hasVariable && { needsDirectory: true }),
    });
}

/** Reads flags and paths. The names of the JSON form may have quotes and escapes of their own. */
function readPaths(
  { escape }: Reading,
  { line, rest }: Instruction,
): { flags: ReadonlyMap<string, string>; paths: string[] } {
  const { flags, text } = splitFlags(line, rest);
  const names = readJson(text)?.map((name) => escapeWord(name, escape));
  return { flags, paths: names ?? splitWords(text, escape) };
}

function readAdd(reading: Reading, instruction: Instruction): void {
  const { line } = instruction;
  for (const source of readPaths(reading, instruction).paths.slice(0, -1)) {
    if (/^[a-z]+:\/\/|^git@/iu.test(source))
      throw refuseLine(line, `ADD of ${source} is not supported; download it with RUN`);
    if (/\.(?:tar|tgz|tbz2?|txz|tar\.(?:gz|bz2|xz|zst))$/iu.test(source))
      throw refuseLine(line, `ADD does not unpack ${source}; use COPY and RUN tar`);
  }
  // Archives with other names, and names that depend on variables, are found by their content once they are selected.
  readCopy(reading, instruction);
}

function readEnv(reading: Reading, { line, rest }: Instruction): void {
  const words = splitWords(requireText(line, rest), reading.escape);
  const [first = ''] = words;
  const env = new Map<string, string>();
  if (!first.includes('=')) {
    const value = rest.slice(first.length).trim();
    if (value === '') throw refuseLine(line, 'write ENV NAME=value');
    env.set(first, value);
  } else
    for (const word of words) {
      const equals = word.indexOf('=');
      if (equals < 1) throw refuseLine(line, `${word}: write NAME=value`);
      env.set(word.slice(0, equals), word.slice(equals + 1));
    }
  for (const name of env.keys())
    if (!isVariable(name)) throw refuseLine(line, `${name} is not the name of a variable`);
  addStep(reading, { line, env: Object.fromEntries(env) });
}

/** JSON objects with a key `__proto__` are not the same everywhere. */
function isVariable(name: string): boolean {
  return /^[A-Za-z_][A-Za-z0-9_]*$/u.test(name) && name !== '__proto__';
}

const FLAG = /--([\w-]+)(?:=(\S*))?(?:\s+|$)/uy;

function splitFlags(line: number, rest: string): { flags: ReadonlyMap<string, string>; text: string } {
  const flags = new Map<string, string>();
  const text = requireText(line, rest);
  FLAG.lastIndex = 0;
  let end = 0;
  for (let found = FLAG.exec(text); found !== null; found = FLAG.exec(text)) {
    flags.set(found[1] ?? '', found[2] ?? 'true');
    end = FLAG.lastIndex;
    if (end === text.length) break;
  }
  return { flags, text: text.slice(end) };
}

function refuseFlags(line: number, flags: ReadonlyMap<string, string>, known: readonly string[]): void {
  const flag = [...flags.keys()].find((name) => !known.includes(name));
  if (flag !== undefined) throw refuseLine(line, `--${flag} is not supported; remove it`);
}

/** Returns undefined unless the text is an array of strings. */
function readJson(text: string): string[] | undefined {
  if (!text.startsWith('[')) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    const isWords =
      Array.isArray(value) && value.length > 0 && value.every((word) => typeof word === 'string');
    return isWords ? value : undefined;
  } catch {
    return undefined;
  }
}

function requireText(line: number, text: string): string {
  if (text.trim() !== '') return text;
  throw refuseLine(line, 'the instruction says nothing; complete or remove it');
}
