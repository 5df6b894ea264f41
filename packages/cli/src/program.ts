import { Command, Help, type Option } from 'commander';
import { globalOptions } from './calls/command-call.ts';
import { addAudit } from './commands/audit.ts';
import { addCommands } from './commands/commands.ts';
import { addCompletion } from './commands/completion.ts';
import { addCopies } from './commands/copies.ts';
import { addCopy } from './commands/copy.ts';
import { addCreate } from './commands/create.ts';
import { addDisks } from './commands/disks.ts';
import { addExec } from './commands/exec.ts';
import { addGet } from './commands/get.ts';
import { addImages } from './commands/images.ts';
import { addList } from './commands/list.ts';
import { addLogin } from './commands/login.ts';
import { addMetrics } from './commands/metrics.ts';
import { addProfiles } from './commands/profiles.ts';
import { addRemove } from './commands/remove.ts';
import { addRun } from './commands/run.ts';
import { addShell } from './commands/shell.ts';
import { addSnapshots } from './commands/snapshots.ts';
import { addSsh } from './commands/ssh.ts';
import { addTimeout } from './commands/timeout.ts';
import { addUpdate } from './commands/update.ts';
import { addUrl } from './commands/url.ts';
import { addUsage } from './commands/usage.ts';
import { Failure } from './output/failure.ts';

const FIRST_STEPS = `
First steps:
  coppice login                          stores your API key
  coppice create --name first coppice/base:1
  coppice shell first                    its name, or the first characters of its id

Environment: SANDBOX_API_KEY and SANDBOX_BASE_URL replace the stored profile; NO_COLOR turns colours off.
Exit codes: 0 done, 1 failed, 2 wrong arguments; exec, run, shell, ssh and "commands wait" pass on the code of the command in
the sandbox, and exit with 125 if coppice itself failed.
`;

/** In the order of the help. */
const COMMANDS = [
  addLogin,
  addProfiles,
  addCreate,
  addRun,
  addList,
  addGet,
  addUpdate,
  addMetrics,
  addExec,
  addShell,
  addSsh,
  addCommands,
  addCopy,
  addUrl,
  addTimeout,
  addCopies,
  addRemove,
  addSnapshots,
  addImages,
  addDisks,
  addUsage,
  addAudit,
  addCompletion,
];

/** Builds the parser with all commands. It throws instead of ending the process. */
export function buildProgram(version: string): Command {
  const program = new Command('coppice')
    .description('Runs code in microVM sandboxes of a Coppice service.')
    .version(version, '-V, --version', 'prints the version')
    .helpOption('-h, --help', 'prints this help')
    .helpCommand('help [command]', 'prints the help of a command')
    .enablePositionalOptions()
    .configureHelp({
      showGlobalOptions: true,
      subcommandTerm: formatTerm,
      visibleGlobalOptions: listGlobalOptions,
    })
    .configureOutput({ outputError: (text, print) => print(text.replace(/^error: /u, 'coppice: ')) })
    .showSuggestionAfterError()
    .exitOverride()
    .addHelpText('after', FIRST_STEPS);
  for (const option of globalOptions()) program.addOption(option);
  for (const add of COMMANDS) add(program);
  addAdmin(program);
  return program;
}

/** The operator's commands need the files of the service. Where these are, `bin/coppice.mjs` runs them itself. */
function addAdmin(program: Command): void {
  const summary = 'commands of the operator, which run on the server';
  program
    .command('admin [arguments...]')
    .summary(summary)
    .description(summary)
    .allowUnknownOption()
    .action(() => {
      throw new Failure(
        'the commands of "admin" run on the server: log in there and run "node packages/cli/bin/coppice.mjs admin" in the ' +
          'directory of the service',
      );
    });
}

/** The program's own `--version` is not known after the name of a command. Its own help lists them as its options. */
function listGlobalOptions({ parent }: Command): Option[] {
  return parent === null ? [] : globalOptions();
}

/** Names and arguments without "[options]", which every command has. */
function formatTerm(command: Command): string {
  return new Help().subcommandTerm(command).replace(' [options]', '');
}
