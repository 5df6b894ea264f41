import { Argument, Option, type Command } from 'commander';
import type { Coppice } from '../../../sdk/src/index.ts';
import { Output } from '../output/output.ts';
import { connect, type GlobalOptions } from '../profiles/connection.ts';

/** Everything that one call of a command works with. */
export interface Call<Options> {
  /** Arguments without options, as given. */
  operands: readonly string[];
  options: Options & GlobalOptions;
  out: Output;
  /** Opens the client of the chosen service. */
  connect: () => Coppice;
}

/** Does the work of a command. Returns its exit code; nothing means 0. */
export type Work<Options> = (call: Call<Options>) => Promise<number | void>;

/** Name, arguments and help of a command. */
export interface CommandText {
  /** Name and arguments, for example `get <sandbox>`. */
  syntax: string;
  alias?: string;
  summary: string;
  /** Further explanation for the command's own help. */
  details?: string;
  /** True: the parent's name alone means this command. */
  isDefault?: boolean;
  /** Calls that show how it is used. */
  examples: readonly string[];
}

const ARGUMENTS: ReadonlyMap<string, string> = new Map([
  ['sandbox', 'name of the sandbox, or its id, of which the beginning is enough'],
  ['image', 'reference of the image, with a tag or a digest'],
  ['snapshot', 'id of the snapshot'],
  ['build', 'id of the build, as "images build" prints it'],
  ['command-id', 'id of the command, as "commands start" prints it'],
]);

/** Returns the options of every command, which may stand before its name and after it. */
export function globalOptions(): Option[] {
  return [
    new Option('--profile <name>', 'uses this profile of "coppice profiles"'),
    new Option('--url <address>', 'uses the service at this address'),
    new Option('--json', 'prints JSON for programs'),
  ];
}

/** Adds a command with the options of every command, without its own options and its work. */
export function addCommand(parent: Command, text: CommandText): Command {
  const { syntax, alias, summary, details, isDefault, examples } = text;
  const command = parent.command(syntax, { isDefault: isDefault === true }).summary(summary);
  const sentence = `${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`;
  command.description(details === undefined ? sentence : `${sentence}\n\n${details}`);
  for (const argument of command.registeredArguments)
    argument.description = ARGUMENTS.get(argument.name()) ?? argument.description;
  if (alias !== undefined) command.alias(alias);
  // The help shows them once, as options of the whole program.
  for (const option of globalOptions()) command.addOption(option.hideHelp());
  return command.addHelpText('after', `\nExamples:\n${examples.map((line) => `  ${line}\n`).join('')}`);
}

/** Returns the action of a command, which sets the exit code of the process. */
export function action<Options extends object>(work: Work<Options>) {
  return async (...args: unknown[]): Promise<void> => {
    // Commander passes the command last.
    const command = args.at(-1) as Command;
    const options = readOptions(command) as Options & GlobalOptions;
    const code = await work({
      operands: command.args,
      options,
      out: new Output(options),
      connect: () => connect(options),
    });
    process.exitCode = code ?? 0;
  };
}

/** Returns the options of a command and of its parents. The one that is nearest to the command counts. */
function readOptions(command: Command): object {
  return { ...(command.parent === null ? {} : readOptions(command.parent)), ...command.opts() };
}

/**
 * Adds the argument that is the command in the guest, after the sandbox or the image. Everything from its first word on
 * belongs to the guest: `--url` in it must not send the key elsewhere, and `-n` must not change how it is run.
 */
export function addGuestCommand(command: Command, syntax: '<command...>' | '[command...]'): Command {
  command.addArgument(
    new Argument(syntax, 'the command; its options are its own. One argument is a line for /bin/sh'),
  );
  const parse = command.passThroughOptions().parseOptions.bind(command);
  command.parseOptions = (args) => {
    // Parsing ends at the first operand, the sandbox or the image. Options may follow that, too.
    const begun = parse([...args]);
    const [target, ...rest] = begun.operands;
    const hasEnded = args.at(-begun.operands.length - 1) === '--';
    if (target === undefined || begun.unknown.length > 0 || hasEnded) return begun;
    const { operands, unknown } = parse(rest);
    return { operands: [target, ...operands], unknown };
  };
  return command;
}

/** Returns the first operands, of which the parser has checked that they are there. */
export function first({ operands }: Pick<Call<object>, 'operands'>): string {
  return operands[0] ?? '';
}
