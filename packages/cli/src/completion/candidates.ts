import type { Command, Option } from 'commander';
import type { Coppice } from '../../../sdk/src/index.ts';
import { connect, type GlobalOptions } from '../profiles/connection.ts';
import { readProfiles } from '../profiles/profile-file.ts';

/** A shell waits for the answer while the user waits for the shell. */
const TIMEOUT_MS = 2000;
const MAX_IDS = 200;
const END_OF_OPTIONS = '--';

/** The place in the command line that is to be completed. */
interface Place {
  command: Command;
  /** Arguments so far, without options. */
  operands: string[];
  /** The option whose value is next. */
  option: Option | undefined;
  options: GlobalOptions;
}

/** Returns what may be the last of the words, which may be empty. It asks the service for ids; without an answer there are none. */
export async function listCandidates(program: Command, words: readonly string[]): Promise<string[]> {
  const typed = words.at(-1) ?? '';
  const before = words.slice(0, -1);
  if (before.includes(END_OF_OPTIONS)) return [];
  const place = findPlace(program, before);
  if (isInGuestCommand(place)) return [];
  const found = typed.startsWith('-') ? listOptions(place.command) : await listValues(place);
  return found.filter((text) => text.startsWith(typed));
}

function findPlace(program: Command, words: readonly string[]): Place {
  const place: Place = { command: program, operands: [], option: undefined, options: {} };
  for (const word of words) {
    if (place.option !== undefined) {
      if (place.option.long === '--profile') place.options.profile = word;
      if (place.option.long === '--url') place.options.url = word;
      place.option = undefined;
    } else if (word.startsWith('-')) {
      const option = allOptions(place.command).find(({ long, short }) => long === word || short === word);
      place.option = option?.required === true ? option : undefined;
    } else {
      const next = place.operands.length === 0 ? findChild(place.command, word) : undefined;
      if (next === undefined) place.operands.push(word);
      else place.command = next;
    }
  }
  return place;
}

/** Returns whether the place is after the first word of a command in the guest. */
function isInGuestCommand({ command, operands }: Place): boolean {
  const index = command.registeredArguments.findIndex((argument) => argument.name() === 'command');
  return index !== -1 && operands.length > index;
}

async function listValues({ command, operands, option, options }: Place): Promise<string[]> {
  if (option !== undefined) return option.long === '--profile' ? listProfiles() : [];
  const children = operands.length === 0 ? command.commands.map((child) => child.name()) : [];
  if (children.length > 0) return children;
  const { registeredArguments } = command;
  const argument = registeredArguments[Math.min(operands.length, registeredArguments.length - 1)];
  if (argument === undefined || (operands.length >= registeredArguments.length && !argument.variadic))
    return [];
  if (argument.name() === 'profile') return listProfiles();
  return listIds(argument.name(), () => connect(options, { timeoutMs: TIMEOUT_MS, maxRetries: 0 }));
}

async function listIds(argument: string, open: () => Coppice): Promise<string[]> {
  const limit = MAX_IDS;
  try {
    if (argument === 'sandbox')
      return (await open().sandboxes.list({ limit })).flatMap(({ id, name }) =>
        name === null ? id : [id, name],
      );
    if (argument === 'snapshot') return (await open().snapshots.list({ limit })).map(({ id }) => id);
    if (argument === 'disk') return (await open().listDisks({ limit })).map(({ name }) => name);
    if (argument === 'build') return (await open().builds.list()).map(({ id }) => id);
    if (argument === 'image')
      return (await open().images.list()).map(({ image }) => image.split('@')[0] ?? '');
    return [];
  } catch {
    // A completion has no place for a message; the command itself shows it.
    return [];
  }
}

function listProfiles(): string[] {
  try {
    return [...readProfiles().profiles.keys()];
  } catch {
    // As above.
    return [];
  }
}

function listOptions(command: Command): string[] {
  return [...new Set(allOptions(command).map(({ long }) => long ?? '')), '--help'];
}

function allOptions(command: Command): readonly Option[] {
  return command.parent === null ? command.options : [...command.options, ...allOptions(command.parent)];
}

function findChild(command: Command, word: string): Command | undefined {
  return command.commands.find((child) => child.name() === word || child.aliases().includes(word));
}
