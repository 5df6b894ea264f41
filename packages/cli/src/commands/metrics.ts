import type { Command } from 'commander';
import type { MetricsNow } from '../../../sdk/src/index.ts';
import { formatBytes } from '../output/quantities.ts';
import type { Field } from '../output/table.ts';
import { action, addCommand, first } from '../calls/command-call.ts';
import { findSandbox } from '../calls/find-sandbox.ts';

const PERCENT = 100;

export function addMetrics(program: Command): void {
  addCommand(program, {
    syntax: 'metrics <sandbox>',
    summary: 'shows processor, memory, disk and network use of a sandbox',
    details:
      'Measured on the host, apart from what the sandbox reports itself. Amounts count from its last start or resume. With ' +
      '--json also the series of the last hour.',
    examples: ['coppice metrics run0123', 'coppice metrics run0123 --json | jq .series'],
  }).action(
    action(async (call) => {
      const sandbox = await findSandbox(call.connect(), first(call));
      const metrics = await sandbox.metrics();
      const fields = metrics.now === null ? [] : describe(metrics.now);
      if (fields.length === 0) call.out.note(`${sandbox.id} is not running: there is nothing to measure`);
      await call.out.record(metrics, fields);
    }),
  );
}

function describe({ at, cpu, memory, disk, workspace, network, guestReported }: MetricsNow): Field[] {
  return [
    ['measured', at],
    ['cpu', cpu.utilization === null ? null : formatPercent(cpu.utilization)],
    ['cpu time', `${cpu.usedSeconds.toFixed(1)} s`],
    ['memory on the host', formatPart(memory.hostBytes, memory.sizeBytes)],
    ['scratch disk', formatPart(disk.usedBytes, disk.sizeBytes)],
    ['read from disks', formatBytes(disk.readBytes)],
    ['written to disks', formatBytes(disk.writtenBytes)],
    ['disk not stored yet', workspace === null ? null : formatBytes(workspace.dirtyBytes)],
    ['received', network === null ? null : formatBytes(network.receivedBytes)],
    ['sent', network === null ? null : formatBytes(network.sentBytes)],
    ['memory it reports', guestReported === null ? null : formatMemory(guestReported)],
    ['load it reports', guestReported?.load1],
    ['processes it reports', guestReported?.processes],
  ];
}

function formatMemory(report: { memoryTotalBytes: number; memoryAvailableBytes: number }): string {
  return formatPart(report.memoryTotalBytes - report.memoryAvailableBytes, report.memoryTotalBytes);
}

function formatPart(bytes: number, ofBytes: number): string {
  return `${formatBytes(bytes)} of ${formatBytes(ofBytes)}`;
}

function formatPercent(part: number): string {
  return `${(part * PERCENT).toFixed(1)} %`;
}
