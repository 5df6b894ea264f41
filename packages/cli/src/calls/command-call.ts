import { Argument, type Command } from 'commander';
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
  ['sandbox', 'id of the sandbox, or the beginning of it'],
  ['image', 'reference of the image, with a tag or a digest'],
  ['snapshot', 'id of the snapshot'],
  ['command-id', 'id of the command, as "commands start" prints it'],
]);

/** Adds a command without its options and its work. */
export function addCommand(parent: Command, text: CommandText): Command {
  const { syntax, alias, summary, details, isDefault, examples } = text;
  const command = parent.command(syntax, { isDefault: isDefault === true }).summary(summary);
  const sentence = `${summary.charAt(0).toUpperCase()}${summary.slice(1)}.`;
  command.description(details === undefined ? sentence : `${sentence}\n\n${details}`);
  for (const argument of command.registeredArguments)
    argument.description = ARGUMENTS.get(argument.name()) ?? argument.description;
  if (alias !== undefined) command.alias(alias);
  return command.addHelpText('after', `\nExamples:\n${examples.map((line) => `  ${line}\n`).join('')}`);
}

/** Returns the action of a command, which sets the exit code of the process. */
export function action<Options extends object>(work: Work<Options>) {
  return async (...args: unknown[]): Promise<void> => {
    // Commander passes the command last.
    const command = args.at(-1) as Command;
    const options = command.optsWithGlobals<Options & GlobalOptions>();
    const code = await work({
      operands: command.args,
      options,
      out: new Output(options),
      connect: () => connect(options),
    });
    process.exitCode = code ?? 0;
  };
}

/** The arguments that are the command in the guest, after the sandbox or the image. */
export function guestCommand(): Argument {
  return new Argument('<command...>', 'the command, after --; one argument is a line for /bin/sh');
}

/** Returns the first operands, of which the parser has checked that they are there. */
export function first({ operands }: Pick<Call<object>, 'operands'>): string {
  return operands[0] ?? '';
}
