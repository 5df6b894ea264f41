import type { Command } from 'commander';
import type { SnapshotInfo } from '../../../sdk/src/index.ts';
import { Failure, UsageError } from '../output/failure.ts';
import { formatAge, formatBytes, formatMiB, formatUntil } from '../output/quantities.ts';
import type { Column, Field } from '../output/table.ts';
import { action, addCommand, first } from '../calls/command-call.ts';
import { shortenImage } from './list.ts';
import { parseSeconds, whole } from '../calls/parse-values.ts';

const SECOND_MS = 1000;

const COLUMNS: readonly Column<SnapshotInfo>[] = [
  { head: 'ID', text: ({ id }) => id },
  { head: 'NAME', text: ({ name }) => name ?? '' },
  { head: 'SANDBOX', text: ({ runId }) => runId },
  { head: 'IMAGE', text: ({ image }) => shortenImage(image) },
  { head: 'SIZE', text: ({ sizeBytes }) => formatBytes(sizeBytes) },
  { head: 'AGE', text: ({ createdAt }) => formatAge(createdAt) },
  { head: 'EXPIRES IN', text: ({ expiresAt }) => formatUntil(expiresAt) },
];

export function addSnapshots(program: Command): void {
  const snapshots = addCommand(program, {
    syntax: 'snapshots',
    summary: 'lists, changes and deletes snapshots',
    examples: ['coppice snapshots', 'coppice snapshots rm snap0123456789abcdef0123'],
  });
  addCommand(snapshots, {
    syntax: 'ls',
    alias: 'list',
    isDefault: true,
    summary: 'lists snapshots',
    examples: ['coppice snapshots ls --sandbox run0123456789abcdef0123'],
  })
    .option('--sandbox <id>', 'only those of this sandbox, by its whole id')
    .option('--limit <count>', 'at most this many', whole(1))
    .action(
      action<{ sandbox?: string; limit?: number }>(async ({ options, out, connect }) => {
        await out.list(
          await connect().snapshots.list({ runId: options.sandbox, limit: options.limit }),
          COLUMNS,
        );
      }),
    );
  addCommand(snapshots, {
    syntax: 'get <snapshot>',
    summary: 'shows one snapshot',
    examples: ['coppice snapshots get snap0123456789abcdef0123'],
  }).action(
    action(async (call) => {
      const found = await call.connect().snapshots.get(first(call));
      if (found === null)
        throw new Failure(`there is no snapshot "${first(call)}": "coppice snapshots" lists yours`);
      await call.out.record(found, describeSnapshot(found));
    }),
  );
  addUpdate(snapshots);
  addCommand(snapshots, {
    syntax: 'rm <snapshot...>',
    alias: 'delete',
    summary: 'deletes snapshots',
    examples: ['coppice snapshots rm snap0123456789abcdef0123'],
  }).action(
    action(async ({ operands, connect }) => {
      const client = connect();
      for (const id of operands) await client.snapshots.delete(id);
    }),
  );
}

function addUpdate(snapshots: Command): void {
  addCommand(snapshots, {
    syntax: 'update <snapshot>',
    summary: 'changes the name of a snapshot, and when it expires',
    examples: ['coppice snapshots update snap0123456789abcdef0123 --name installed --expires-in 30d'],
  })
    .option('--name <text>', 'name for people; empty: none')
    .option('--expires-in <time>', 'time after which the service deletes it; 0: never', parseSeconds)
    .action(
      action<{ name?: string; expiresIn?: number }>(async (call) => {
        const { name, expiresIn } = call.options;
        if (name === undefined && expiresIn === undefined)
          throw new UsageError('nothing is changed: give --name or --expires-in');
        const changed = await call.connect().snapshots.update(first(call), {
          name: name === '' ? null : name,
          expiresAt: toMoment(expiresIn),
        });
        await call.out.record(changed, describeSnapshot(changed));
      }),
    );
}

function toMoment(seconds: number | undefined): Date | null | undefined {
  if (seconds === undefined) return undefined;
  return seconds === 0 ? null : new Date(Date.now() + seconds * SECOND_MS);
}

function describeSnapshot(snapshot: SnapshotInfo): Field[] {
  return [
    ['id', snapshot.id],
    ['name', snapshot.name],
    ['sandbox', snapshot.runId],
    ['image', snapshot.image],
    ['cpus', snapshot.vcpus],
    ['memory', formatMiB(snapshot.memMiB)],
    ['scratch disk', formatMiB(snapshot.diskMiB)],
    ['disk', snapshot.disk?.name],
    ['size', formatBytes(snapshot.sizeBytes)],
    ['created', snapshot.createdAt],
    ['expires', snapshot.expiresAt],
  ];
}
