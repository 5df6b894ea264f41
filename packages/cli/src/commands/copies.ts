import type { Command } from 'commander';
import { ForkError } from '../../../sdk/src/index.ts';
import { describeFailure, EXIT } from '../output/failure.ts';
import { action, addCommand, first } from '../calls/command-call.ts';
import { findSandbox } from '../calls/find-sandbox.ts';
import {
  addLifeOptions,
  addProcessDefaults,
  toLifeOptions,
  toProcessDefaults,
  type LifeOptions,
  type ProcessDefaults,
} from '../calls/sandbox-options.ts';
import { collect, parseSeconds, whole } from '../calls/parse-values.ts';

const MAX_CHILDREN = 100;

/** Adds the commands that copy, save and continue sandboxes. */
export function addCopies(program: Command): void {
  addFork(program);
  addSnapshot(program);
  addRestore(program);
  addRollback(program);
  addHibernate(program);
  addResume(program);
}

function addFork(program: Command): void {
  addCommand(program, {
    syntax: 'fork <sandbox>',
    summary: 'copies a running sandbox and prints the ids of the copies',
    details: 'The copies have its memory, processes and files. Exits with 1 if some could not be made.',
    examples: [
      'coppice fork run0123',
      'for id in $(coppice fork -n 3 run0123); do coppice exec $id -- ./try; done',
    ],
  })
    .option('-n, --count <count>', `number of copies, 1–${MAX_CHILDREN}`, whole(1, MAX_CHILDREN), 1)
    .option('--disk <name>', 'name of the persistent disk of a copy; once for each copy', collect)
    .action(
      action<{ count: number; disk?: string[] }>(async (call) => {
        const sandbox = await findSandbox(call.connect(), first(call));
        const { children, errors } = await sandbox
          .fork(call.options.count, { disks: call.options.disk })
          .then((all) => ({ children: all, errors: [] as Error[] }))
          .catch((error: unknown) => {
            if (error instanceof ForkError) return error;
            throw error;
          });
        if (call.out.isJson) await call.out.json(children.map(({ record }) => record));
        else for (const { id } of children) await call.out.result(id, id);
        for (const error of errors) call.out.note(`coppice: a copy failed: ${describeFailure(error)}`);
        return errors.length === 0 ? 0 : EXIT.failed;
      }),
    );
}

function addSnapshot(program: Command): void {
  addCommand(program, {
    syntax: 'snapshot <sandbox>',
    summary: 'saves a sandbox with its memory and files, and prints the id of the snapshot',
    examples: ['coppice snapshot run0123 --name installed', 'coppice restore $(coppice snapshot run0123)'],
  })
    .option('--name <text>', 'name for people')
    .option('--expires-in <time>', 'time after which the service deletes it (default: never)', parseSeconds)
    .action(
      action<{ name?: string; expiresIn?: number }>(async (call) => {
        const sandbox = await findSandbox(call.connect(), first(call));
        const snapshot = await sandbox.snapshot({
          name: call.options.name,
          expiresIn: call.options.expiresIn,
        });
        await call.out.result(snapshot, snapshot.id);
      }),
    );
}

function addRestore(program: Command): void {
  const command = addCommand(program, {
    syntax: 'restore <snapshot>',
    summary: 'creates a sandbox from a snapshot and prints its id',
    details: 'What no option gives is as in the sandbox of the snapshot. Only the name is not taken over.',
    examples: ['coppice restore snap0123456789abcdef0123 --timeout 1h'],
  });
  addProcessDefaults(addLifeOptions(command, "the snapshot's"))
    .option('--disk <name>', "name of the new persistent disk, if the snapshot's sandbox had one")
    .action(
      action<LifeOptions & ProcessDefaults>(async (call) => {
        const settings = { ...toLifeOptions(call.options), ...toProcessDefaults(call.options) };
        const sandbox = await call.connect().sandboxes.restore(first(call), settings);
        await call.out.result(sandbox.record, sandbox.id);
      }),
    );
}

function addRollback(program: Command): void {
  addCommand(program, {
    syntax: 'rollback <sandbox> <snapshot>',
    summary: 'returns a sandbox to a snapshot; all changes since then are lost',
    examples: ['coppice rollback run0123 snap0123456789abcdef0123'],
  }).action(
    action(async (call) => {
      const sandbox = await findSandbox(call.connect(), first(call));
      const record = await sandbox.rollback(call.operands[1] ?? '');
      await call.out.result(record, `${record.id} is ${record.status}`);
    }),
  );
}

function addHibernate(program: Command): void {
  addCommand(program, {
    syntax: 'hibernate <sandbox>',
    summary: 'saves a sandbox to disk; until it is resumed it costs nothing',
    examples: ['coppice hibernate run0123'],
  }).action(
    action(async (call) => {
      const record = await (await findSandbox(call.connect(), first(call))).hibernate();
      await call.out.result(record, `${record.id} is ${record.status}`);
    }),
  );
}

function addResume(program: Command): void {
  addCommand(program, {
    syntax: 'resume <sandbox>',
    summary: 'resumes a hibernated sandbox',
    examples: ['coppice resume run0123', 'coppice resume --fresh-disk run0123'],
  })
    .option(
      '--fresh-disk',
      'mounts its persistent disk as it is now; files that programs have open on it are lost',
    )
    .action(
      action<{ freshDisk?: boolean }>(async (call) => {
        const sandbox = await findSandbox(call.connect(), first(call));
        const record = await sandbox.resume({ disk: call.options.freshDisk === true ? 'fresh' : undefined });
        await call.out.result(record, `${record.id} is ${record.status}`);
      }),
    );
}
