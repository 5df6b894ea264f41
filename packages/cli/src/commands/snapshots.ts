import type { Command } from 'commander';
import type { SnapshotInfo } from '../../../sdk/src/index.ts';
import { formatAge, formatBytes } from '../output/quantities.ts';
import type { Column } from '../output/table.ts';
import { action, addCommand } from '../calls/command-call.ts';
import { shortenImage } from './list.ts';
import { whole } from '../calls/parse-values.ts';

const COLUMNS: readonly Column<SnapshotInfo>[] = [
  { head: 'ID', text: ({ id }) => id },
  { head: 'NAME', text: ({ name }) => name ?? '' },
  { head: 'SANDBOX', text: ({ runId }) => runId },
  { head: 'IMAGE', text: ({ image }) => shortenImage(image) },
  { head: 'SIZE', text: ({ sizeBytes }) => formatBytes(sizeBytes) },
  { head: 'AGE', text: ({ createdAt }) => formatAge(createdAt) },
];

export function addSnapshots(program: Command): void {
  const snapshots = addCommand(program, {
    syntax: 'snapshots',
    summary: 'lists and deletes snapshots',
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
