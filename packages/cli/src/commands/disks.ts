import type { Command } from 'commander';
import type { DiskInfo, DiskSnapshotInfo } from '../../../sdk/src/index.ts';
import { formatAge, formatBytes } from '../output/quantities.ts';
import type { Column, Field } from '../output/table.ts';
import { action, addCommand, first } from '../calls/command-call.ts';
import { Failure } from '../output/failure.ts';
import { whole } from '../calls/parse-values.ts';

const COLUMNS: readonly Column<DiskInfo>[] = [
  { head: 'NAME', text: ({ name }) => name },
  { head: 'STATUS', text: ({ status }) => status },
  { head: 'SIZE', text: ({ sizeGb }) => `${sizeGb} GiB` },
  { head: 'STORED', text: ({ storedBytes }) => formatBytes(storedBytes) },
  { head: 'SANDBOX', text: ({ attachedTo }) => attachedTo ?? '' },
  { head: 'PARENT', text: ({ parent }) => parent ?? '' },
  { head: 'AGE', text: ({ createdAt }) => formatAge(createdAt) },
];
const SNAPSHOT_COLUMNS: readonly Column<DiskSnapshotInfo>[] = [
  { head: 'NAME', text: ({ name }) => name },
  { head: 'SIZE', text: ({ sizeGb }) => `${sizeGb} GiB` },
  { head: 'AGE', text: ({ createdAt }) => formatAge(createdAt) },
];

export function addDisks(program: Command): void {
  const disks = addCommand(program, {
    syntax: 'disks',
    summary: 'manages persistent disks',
    examples: [
      'coppice disks create data --size 20',
      'coppice create --disk data coppice/base:1',
      'coppice disks',
    ],
  });
  addListDisks(disks);
  addCreateDisk(disks);
  addGrowDisk(disks);
  addRemoveDisk(disks);
  addForkDisk(disks);
  addDiskSnapshots(disks);
}

function addListDisks(disks: Command): void {
  addCommand(disks, {
    syntax: 'ls',
    alias: 'list',
    isDefault: true,
    summary: 'lists disks',
    examples: ['coppice disks ls'],
  }).action(action(async ({ out, connect }) => out.list(await connect().listDisks(), COLUMNS)));
  addCommand(disks, {
    syntax: 'get <disk>',
    summary: 'shows one disk',
    examples: ['coppice disks get data'],
  }).action(
    action(async (call) => {
      const disk = await call.connect().getDisk(first(call));
      if (disk === null) throw new Failure(`there is no disk "${first(call)}": "coppice disks" lists yours`);
      await call.out.record(disk, describeDisk(disk));
    }),
  );
}

function addCreateDisk(disks: Command): void {
  addCommand(disks, {
    syntax: 'create <disk>',
    summary: 'creates an empty disk',
    examples: ['coppice disks create data --size 20'],
  })
    .requiredOption('--size <GiB>', 'size in whole GiB; space is used only as it is written', whole(1))
    .action(
      action<{ size: number }>(async (call) => {
        const disk = await call.connect().createDisk({ name: first(call), sizeGb: call.options.size });
        await call.out.result(disk, disk.name);
      }),
    );
}

function addGrowDisk(disks: Command): void {
  addCommand(disks, {
    syntax: 'grow <disk>',
    summary: 'grows a disk, also while a sandbox uses it',
    examples: ['coppice disks grow data --size 40'],
  })
    .requiredOption('--size <GiB>', 'new size in whole GiB', whole(1))
    .action(
      action<{ size: number }>(async (call) => {
        const disk = await call.connect().growDisk(first(call), call.options.size);
        await call.out.result(disk, `${disk.name} has ${disk.sizeGb} GiB`);
      }),
    );
}

function addRemoveDisk(disks: Command): void {
  addCommand(disks, {
    syntax: 'rm <disk...>',
    alias: 'delete',
    summary: 'deletes disks with their data and their snapshots',
    examples: ['coppice disks rm data'],
  }).action(
    action(async ({ operands, connect }) => {
      const client = connect();
      for (const name of operands) await client.deleteDisk(name);
    }),
  );
}

function addForkDisk(disks: Command): void {
  addCommand(disks, {
    syntax: 'fork <disk> <new-disk>',
    summary: 'makes a new disk from a snapshot of a disk',
    examples: ['coppice disks fork data data-copy --snapshot clean'],
  })
    .requiredOption('--snapshot <name>', 'the snapshot')
    .action(
      action<{ snapshot: string }>(async (call) => {
        const [disk = '', name = ''] = call.operands;
        const forked = await call.connect().forkDisk(disk, { snapshot: call.options.snapshot, name });
        await call.out.result(forked, forked.name);
      }),
    );
}

function addDiskSnapshots(disks: Command): void {
  addCommand(disks, {
    syntax: 'snapshot <disk> <name>',
    summary: 'takes a snapshot of a disk, also while a sandbox uses it',
    examples: ['coppice disks snapshot data clean --sync'],
  })
    .option('--sync', 'first writes out the file system of the sandbox that uses it')
    .action(
      action<{ sync?: boolean }>(async (call) => {
        const [disk = '', name = ''] = call.operands;
        const snapshot = await call.connect().snapshotDisk(disk, { name, sync: call.options.sync });
        await call.out.result(snapshot, snapshot.name);
      }),
    );
  addCommand(disks, {
    syntax: 'snapshots <disk>',
    summary: 'lists the snapshots of a disk',
    examples: ['coppice disks snapshots data'],
  }).action(
    action(async (call) =>
      call.out.list(await call.connect().listDiskSnapshots(first(call)), SNAPSHOT_COLUMNS),
    ),
  );
  addCommand(disks, {
    syntax: 'rm-snapshot <disk> <name>',
    summary: 'deletes a snapshot of a disk',
    examples: ['coppice disks rm-snapshot data clean'],
  }).action(
    action(async ({ operands: [disk = '', name = ''], connect }) => connect().deleteDiskSnapshot(disk, name)),
  );
}

function describeDisk(disk: DiskInfo): Field[] {
  return [
    ['name', disk.name],
    ['status', disk.status],
    ['size', `${disk.sizeGb} GiB`],
    ['stored', formatBytes(disk.storedBytes)],
    ['sandbox', disk.attachedTo],
    ['parent', disk.parent],
    ['not stored yet', disk.dirtyBytes === 0 ? null : formatBytes(disk.dirtyBytes)],
    ['waits for', disk.waitsFor],
    ['created', disk.createdAt],
  ];
}
