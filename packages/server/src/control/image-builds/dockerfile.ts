/**
 * Reads a Dockerfile as steps of a build. An instruction that the steps cannot carry out is refused with the line and a remedy,
 * and never left out silently. One that means nothing to a sandbox, such as CMD, becomes a note in the log.
 */
import { refuseLine, splitInstructions, type Instruction } from './dockerfile-lines.ts';
import { expandWord, splitWords, type Lookup } from './dockerfile-words.ts';
import type { PlannedStep } from './planned-step.ts';

export interface Dockerfile {
  from: string;
  steps: PlannedStep[];
  /** Instructions without effect, for the log. */
  notes: string[];
  escape: string;
}

interface Reading {
  escape: string;
  buildArgs: Readonly<Record<string, string>>;
  /** Arguments from before FROM. */
  globals: Map<string, string>;
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
  WORKDIR: (reading, { line, rest }) => reading.steps.push({ line, workdir: requireText(line, rest) }),
  USER: (reading, { line, rest }) => reading.steps.push({ line, user: requireText(line, rest) }),
};

/** Throws `invalid_request` that names the line. */
export function parseDockerfile(text: string, buildArgs: Readonly<Record<string, string>> = {}): Dockerfile {
  const { instructions, escape } = splitInstructions(text);
  const reading: Reading = { escape, buildArgs, globals: new Map(), from: undefined, steps: [], notes: [] };
  for (const instruction of instructions) {
    const { keyword, line } = instruction;
    if (reading.from === undefined && keyword !== 'FROM' && keyword !== 'ARG')
      throw refuseLine(line, `${keyword} comes before FROM; begin with FROM`);
    const reason = NO_EFFECT[keyword];
    const read = READERS[keyword];
    if (reason !== undefined) reading.notes.push(`line ${line}: ${keyword} has no effect: ${reason}`);
    else if (read === undefined)
      throw refuseLine(line, `${keyword} is not supported; write it as RUN, COPY, ENV, WORKDIR or USER`);
    else read(reading, instruction);
  }
  const { from, steps, notes } = reading;
  if (from === undefined) throw refuseLine(1, 'there is no FROM; begin with FROM and a pinned image');
  return { from, steps, notes, escape };
}

function readFrom(reading: Reading, { line, rest }: Instruction): void {
  if (reading.from !== undefined)
    throw refuseLine(
      line,
      'a second FROM: only one stage is supported; build the first stage as an image of its own',
    );
  const { flags, words } = splitFlags(line, rest, reading.escape);
  const { platform, ...others } = flags;
  refuseFlags(line, others);
  if (platform !== undefined && platform !== 'linux/amd64')
    throw refuseLine(line, `--platform=${platform}: sandboxes here are linux/amd64; remove it`);
  const [image = '', as, , ...more] = words;
  if (image === '' || more.length > 0 || (as !== undefined && as.toUpperCase() !== 'AS'))
    throw refuseLine(line, 'write FROM and one image');
  if (image === 'scratch') throw refuseLine(line, 'scratch has no shell for the steps; begin with an image');
  reading.from = expandWord(image, { escape: reading.escape, lookup: (name) => reading.globals.get(name) });
}

function readArg(reading: Reading, { line, rest }: Instruction): void {
  for (const word of splitWords(requireText(line, rest), reading.escape)) {
    const equals = word.indexOf('=');
    const name = equals === -1 ? word : word.slice(0, equals);
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/u.test(name)) throw refuseLine(line, 'write ARG NAME or ARG NAME=default');
    const given = Object.hasOwn(reading.buildArgs, name) ? reading.buildArgs[name] : undefined;
    const raw = equals === -1 ? undefined : word.slice(equals + 1);
    if (reading.from === undefined) {
      const lookup: Lookup = (asked) => reading.globals.get(asked);
      const value =
        given ?? (raw === undefined ? undefined : expandWord(raw, { escape: reading.escape, lookup }));
      if (value !== undefined) reading.globals.set(name, value);
    } else {
      const standard = raw === undefined ? reading.globals.get(name) : undefined;
      reading.steps.push({ line, arg: { name, value: given ?? standard, raw } });
    }
  }
}

function readRun(reading: Reading, { line, rest, document }: Instruction): void {
  if (document !== undefined) return void reading.steps.push({ line, run: requireText(line, document) });
  if (/^--\w/u.test(rest))
    throw refuseLine(line, `${rest.split(/\s/u, 1)[0]}: flags of RUN are not supported; remove it`);
  reading.steps.push({ line, run: readJson(rest) ?? requireText(line, rest) });
}

function readCopy(reading: Reading, { line, rest, keyword }: Instruction): void {
  const { flags, words, text } = splitFlags(line, rest, reading.escape);
  const { chown, chmod, link: _, ...others } = flags;
  if (others['from'] !== undefined)
    throw refuseLine(
      line,
      '--from: only files of the context can be copied; build the other stage as an image of its own',
    );
  refuseFlags(line, others);
  const paths = readJson(text) ?? words;
  const to = paths.at(-1);
  if (paths.length < 2 || to === undefined)
    throw refuseLine(line, `write ${keyword}, one or more sources, and a target`);
  if (paths.length > 2 && !to.endsWith('/'))
    throw refuseLine(line, 'several sources need a target that ends with a slash');
  for (const from_path of paths.slice(0, -1))
    reading.steps.push({
      line,
      copy: {
        from_path,
        to,
        ...(chown !== undefined && { owner: chown }),
        ...(chmod !== undefined && { mode: chmod }),
      },
    });
}

function readAdd(reading: Reading, instruction: Instruction): void {
  const { line, rest } = instruction;
  const { words } = splitFlags(line, rest, reading.escape);
  for (const source of words.slice(0, -1)) {
    if (/^[a-z]+:\/\/|^git@/iu.test(source))
      throw refuseLine(line, `ADD of ${source} is not supported; download it with RUN`);
    if (/\.(?:tar|tgz|tbz2?|txz|tar\.(?:gz|bz2|xz|zst))$/iu.test(source))
      throw refuseLine(line, `ADD does not unpack ${source}; use COPY and RUN tar`);
  }
  readCopy(reading, instruction);
}

function readEnv(reading: Reading, { line, rest }: Instruction): void {
  const words = splitWords(requireText(line, rest), reading.escape);
  const [first = ''] = words;
  const env: Record<string, string> = {};
  if (!first.includes('=')) {
    const value = rest.slice(first.length).trim();
    if (value === '') throw refuseLine(line, 'write ENV NAME=value');
    env[first] = value;
  } else
    for (const word of words) {
      const equals = word.indexOf('=');
      if (equals < 1) throw refuseLine(line, `${word}: write NAME=value`);
      env[word.slice(0, equals)] = word.slice(equals + 1);
    }
  for (const name of Object.keys(env))
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/u.test(name))
      throw refuseLine(line, `${name} is not the name of a variable`);
  reading.steps.push({ line, env });
}

function splitFlags(
  line: number,
  rest: string,
  escape: string,
): { flags: Record<string, string>; words: string[]; text: string } {
  const flags: Record<string, string> = {};
  let text = requireText(line, rest);
  for (let found = /^--([\w-]+)(?:=(\S*))?(?:\s+|$)/u.exec(text); found !== null;) {
    flags[found[1] ?? ''] = found[2] ?? 'true';
    text = text.slice(found[0].length);
    found = /^--([\w-]+)(?:=(\S*))?(?:\s+|$)/u.exec(text);
  }
  return { flags, words: splitWords(text, escape), text };
}

function refuseFlags(line: number, flags: Readonly<Record<string, string>>): void {
  const [flag] = Object.keys(flags);
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
