import type { Command } from 'commander';
import type { SandboxSettings } from '../../../sdk/src/index.ts';
import { UsageError } from '../output/failure.ts';
import { action, addCommand, first } from '../calls/command-call.ts';
import {
  addEnvironmentOptions,
  readEnvironment,
  type EnvironmentOptions,
} from '../calls/environment-options.ts';
import { findSandbox } from '../calls/find-sandbox.ts';
import { parsePair, parseSeconds } from '../calls/parse-values.ts';
import { describeSandbox } from './get.ts';

interface UpdateOptions extends EnvironmentOptions {
  name?: string;
  timeout?: number;
  maxLifetime?: number;
  autoHibernate?: boolean;
  label?: Record<string, string>;
  cwd?: string;
}

export function addUpdate(program: Command): void {
  const command = addCommand(program, {
    syntax: 'update <sandbox>',
    summary: 'changes settings of a sandbox',
    details:
      'Changes what is given, and restarts the idle timer. Labels replace all labels; variables replace all variables, for ' +
      'processes that start from then on.',
    examples: [
      'coppice update run0123 --name build --label job=nightly',
      'coppice update build --no-auto-hibernate --timeout 2h',
      'coppice update build --env-from app.env --cwd /srv/app',
    ],
  });
  addEnvironmentOptions(command)
    .option('--name <text>', 'name, by which commands find it; empty: none')
    .option('--timeout <time>', 'idle time after which it is destroyed; 0: never', parseSeconds)
    .option(
      '--max-lifetime <time>',
      'time from its creation after which it is destroyed even if it is in use; 0: no limit',
      parseSeconds,
    )
    .option('--auto-hibernate', 'hibernates the idle sandbox instead of destroying it')
    .option('--no-auto-hibernate', 'destroys the idle sandbox')
    .option('--label <key=value>', 'label; may be repeated', parsePair)
    .option('-w, --cwd <directory>', "absolute path where commands start; empty: the image's")
    .action(
      action<UpdateOptions>(async (call) => {
        const settings = toSettings(call.options);
        if (Object.values(settings).every((value) => value === undefined))
          throw new UsageError('nothing is changed: give an option, such as --name');
        const sandbox = await findSandbox(call.connect(), first(call));
        const record = await sandbox.update(settings);
        await call.out.record(record, describeSandbox(record));
      }),
    );
}

function toSettings(options: UpdateOptions): SandboxSettings {
  const { name, timeout, maxLifetime, autoHibernate, label, cwd } = options;
  return {
    name: name === '' ? null : name,
    timeout,
    maxLifetime: maxLifetime === 0 ? null : maxLifetime,
    autoHibernate,
    labels: label,
    cwd: cwd === '' ? null : cwd,
    env: readEnvironment(options),
  };
}
