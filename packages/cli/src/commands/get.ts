import type { Command } from 'commander';
import type { SandboxInfo } from '../../../sdk/src/index.ts';
import { formatLabels, formatMiB, formatSeconds } from '../output/quantities.ts';
import type { Field } from '../output/table.ts';
import { action, addCommand, first } from '../calls/command-call.ts';
import { findSandbox } from '../calls/find-sandbox.ts';

export function addGet(program: Command): void {
  addCommand(program, {
    syntax: 'get <sandbox>',
    alias: 'info',
    summary: 'shows one sandbox',
    examples: ['coppice get run0123', 'coppice get run0123 --json | jq -r .expiresAt'],
  }).action(
    action(async (call) => {
      const { record } = await findSandbox(call.connect(), first(call));
      await call.out.record(record, describeSandbox(record));
    }),
  );
}

/** Returns the fields of a sandbox for a person. */
export function describeSandbox(record: SandboxInfo): Field[] {
  return [
    ['id', record.id],
    ['name', record.name],
    ['status', record.statusReason === null ? record.status : `${record.status} (${record.statusReason})`],
    ['operation', record.operation],
    ['image', record.image],
    ['cpus', record.vcpus],
    ['memory', formatMiB(record.memMiB)],
    ['scratch disk', formatMiB(record.diskMiB)],
    ['disk', record.disk?.name],
    ['directory', record.cwd],
    ['labels', formatLabels(record.labels)],
    ['parent', record.parentId],
    ['created', record.createdAt],
    ['idle timeout', record.timeout === 0 ? 'never' : formatSeconds(record.timeout)],
    ['expires', record.expiresAt],
    ['hibernated', record.hibernatedAt],
    ['ended', record.endedAt],
  ];
}
