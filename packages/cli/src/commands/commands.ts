import { Option, type Command as Parser } from 'commander';
import { toCommandLine } from '../attach/command-line.ts';
import { EXIT, Failure } from '../output/failure.ts';
import { write } from '../output/output.ts';
import { formatAge, formatBytes } from '../output/quantities.ts';
import type { Column } from '../output/table.ts';
import { toVisible } from '../output/visible-text.ts';
import type { Command, CommandInfo, CommandState, Coppice } from '../../../sdk/src/index.ts';
import { action, addCommand, addGuestCommand, first } from '../calls/command-call.ts';
import { readEnvironment } from '../calls/environment-options.ts';
import { addProcessOptions, type ExecOptions } from '../calls/exec-options.ts';
import { findSandbox } from '../calls/find-sandbox.ts';
import { parseSeconds, whole } from '../calls/parse-values.ts';

const COLUMNS: readonly Column<CommandInfo>[] = [
  { head: 'ID', text: ({ id }) => id },
  { head: 'STATE', text: ({ state, exitCode }) => (exitCode === null ? state : `${state} ${exitCode}`) },
  { head: 'AGE', text: ({ startedAt }) => formatAge(startedAt) },
  { head: 'OUTPUT', text: ({ outputBytes }) => formatBytes(outputBytes) },
  { head: 'TAG', text: ({ tag }) => tag ?? '' },
  { head: 'COMMAND', text: ({ command }) => shorten(command) },
];
const MAX_SHOWN = 60;

/** Adds the commands that outlive this process. */
export function addCommands(program: Parser): void {
  const commands = addCommand(program, {
    syntax: 'commands',
    summary: 'starts and follows commands that run on when coppice ends',
    examples: [
      'id=$(coppice commands start run0123 --tag build -- npm run build)',
      'coppice commands logs -f run0123 $id',
      'coppice commands wait run0123 $id',
    ],
  });
  addStart(commands);
  addListCommands(commands);
  addGetCommand(commands);
  addLogs(commands);
  addWait(commands);
  addSignal(commands);
  addInput(commands);
}

function addStart(commands: Parser): void {
  const command = addCommand(commands, {
    syntax: 'start <sandbox>',
    summary: 'starts a command and prints its id',
    examples: ['coppice commands start run0123 -- npm run build'],
  });
  addGuestCommand(command, '<command...>');
  addProcessOptions(command)
    .option('--tag <text>', 'text to find it again')
    .option('--time-limit <time>', 'kills the command after this time (default: never)', parseSeconds)
    .option('-i, --input', 'keeps its standard input open for "commands input"')
    .action(
      action<Omit<ExecOptions, 'input'> & { tag?: string; input?: boolean }>(async (call) => {
        const { cwd, user, tag, timeLimit, input } = call.options;
        const env = readEnvironment(call.options);
        const sandbox = await findSandbox(call.connect(), first(call));
        const started = await sandbox.commands.start(toCommandLine(call.operands.slice(1)), {
          env,
          cwd,
          user,
          tag,
          timeout: timeLimit,
          stdin: input === true ? true : undefined,
        });
        await call.out.result(started.record, started.id);
      }),
    );
}

function addListCommands(commands: Parser): void {
  addCommand(commands, {
    syntax: 'ls <sandbox>',
    alias: 'list',
    summary: 'lists the commands of a sandbox',
    examples: ['coppice commands ls run0123 --tag build'],
  })
    .addOption(
      new Option('--state <state>', 'only those in this state').choices(['running', 'exited', 'lost']),
    )
    .option('--tag <text>', 'only those with this tag')
    .option('--limit <count>', 'at most this many', whole(1))
    .action(
      action<{ state?: CommandState; tag?: string; limit?: number }>(async (call) => {
        const sandbox = await findSandbox(call.connect(), first(call));
        const { state, tag, limit } = call.options;
        const found = await sandbox.commands.list({ state, tag, limit });
        await call.out.list(
          found.map(({ record }) => record),
          COLUMNS,
        );
      }),
    );
}

function addGetCommand(commands: Parser): void {
  addCommand(commands, {
    syntax: 'get <sandbox> <command-id>',
    summary: 'shows one command',
    examples: ['coppice commands get run0123 cmd0123456789abcdef0123'],
  }).action(
    action(async (call) => {
      const { record } = await findCommand(call.connect(), call.operands);
      await call.out.record(record, [
        ['id', record.id],
        ['command', record.command],
        ['state', record.state],
        ['exit code', record.exitCode],
        ['timed out', record.timedOut ? 'yes' : null],
        ['tag', record.tag],
        ['output', formatBytes(record.outputBytes)],
        ['no longer kept', record.droppedBytes === 0 ? null : formatBytes(record.droppedBytes)],
        ['started', record.startedAt],
        ['ended', record.endedAt],
      ]);
    }),
  );
}

function addLogs(commands: Parser): void {
  addCommand(commands, {
    syntax: 'logs <sandbox> <command-id>',
    summary: 'shows the output of a command',
    details:
      'With -f it follows the command to its end, also when the connection is lost or the service restarts, without loss ' +
      'or repetition. Ctrl-C ends only this view.',
    examples: [
      'coppice commands logs run0123 cmd0123456789abcdef0123',
      'coppice commands logs -f run0123 $id',
    ],
  })
    .option('-f, --follow', 'waits for further output, up to the end of the command')
    .option('--offset <bytes>', 'begins here, counted over both streams', whole(0))
    .action(
      action<{ follow?: boolean; offset?: number }>(async (call) => {
        const { follow, offset } = call.options;
        const command = await findCommand(call.connect(), call.operands);
        // Without -f, the view ends where the output ends now.
        const end = follow === true ? Infinity : (await command.info()).outputBytes;
        if ((offset ?? 0) >= end) return;
        for await (const chunk of command.output({ offset })) {
          if (call.out.isJson) await call.out.event(chunk);
          else if (chunk.type === 'dropped')
            call.out.note(`coppice: ${chunk.bytes} bytes of output are no longer kept`);
          else await write(process[chunk.type], chunk.data);
          if (chunk.nextOffset >= end) return;
        }
      }),
    );
}

function addWait(commands: Parser): void {
  addCommand(commands, {
    syntax: 'wait <sandbox> <command-id>',
    summary: 'waits for the end of a command and passes on its exit code',
    details: '125 means that the command was lost with its sandbox, or that coppice itself failed.',
    examples: ['coppice commands wait run0123 $id && echo built'],
  }).action(
    action(async (call) => {
      const record = await (await findCommand(call.connect(), call.operands)).wait();
      if (call.out.isJson) await call.out.json(record);
      if (record.exitCode !== null) return record.exitCode;
      call.out.note('coppice: the command was lost: its sandbox ended or was rolled back');
      return EXIT.attached;
    }),
  );
}

function addSignal(commands: Parser): void {
  addCommand(commands, {
    syntax: 'signal <sandbox> <command-id> <signal>',
    summary: 'sends a signal, such as TERM, to a command and its processes',
    examples: ['coppice commands signal run0123 $id INT'],
  }).action(
    action(async (call) => {
      const name = (call.operands[2] ?? '').toUpperCase().replace(/^SIG/u, '');
      await (await findCommand(call.connect(), call.operands)).signal(name);
    }),
  );
}

function addInput(commands: Parser): void {
  addCommand(commands, {
    syntax: 'input <sandbox> <command-id>',
    summary: 'writes standard input to a command that was started with --input',
    examples: [
      'echo yes | coppice commands input run0123 $id',
      'coppice commands input --end run0123 $id < data',
    ],
  })
    .option('--end', "ends the command's input afterwards")
    .action(
      action<{ end?: boolean }>(async (call) => {
        const command = await findCommand(call.connect(), call.operands);
        for await (const chunk of process.stdin) await command.write(chunk as Uint8Array);
        if (call.options.end === true) await command.write('', { end: true });
      }),
    );
}

async function findCommand(client: Coppice, [sandbox = '', id = '']: readonly string[]): Promise<Command> {
  const found = await (await findSandbox(client, sandbox)).commands.get(id);
  if (found !== null) return found;
  throw new Failure(`there is no command ${id} in this sandbox: "coppice commands ls ${sandbox}" lists them`);
}

function shorten(text: string): string {
  const visible = toVisible(text);
  return visible.length > MAX_SHOWN ? `${visible.slice(0, MAX_SHOWN - 1)}…` : visible;
}
