import type { Command } from 'commander';
import type { ImageInfo, ReadyShape } from '../../../sdk/src/index.ts';
import { formatAge, formatBytes, formatMiB } from '../output/quantities.ts';
import type { Column } from '../output/table.ts';
import { action, addCommand, first } from '../calls/command-call.ts';
import { shortenImage } from './list.ts';
import { parseMiB, whole } from '../calls/parse-values.ts';
import { addBuildCommands } from './image-builds.ts';

const COLUMNS: readonly Column<ImageInfo>[] = [
  { head: 'IMAGE', text: ({ image }) => shortenImage(image) },
  { head: 'STATUS', text: ({ status }) => status },
  { head: 'SIZE', text: ({ sizeBytes }) => formatBytes(sizeBytes) },
  { head: 'PREPARED', text: ({ preparedAt }) => (preparedAt === null ? '' : `${formatAge(preparedAt)} ago`) },
  { head: 'SHAPES', text: ({ shapes }) => shapes.map(formatShape).join(', ') },
];

interface PrepareOptions {
  cpus?: number;
  mem?: number;
  diskSize?: number;
}

export function addImages(program: Command): void {
  const images = addCommand(program, {
    syntax: 'images',
    alias: 'image',
    summary: 'lists images, prepares them ahead of their first use, and builds new ones',
    examples: ['coppice images', 'coppice images prepare python:3.12-slim --mem 2g'],
  });
  addCommand(images, {
    syntax: 'ls',
    alias: 'list',
    isDefault: true,
    summary: 'lists the images that the service stores',
    examples: ['coppice images ls'],
  }).action(action(async ({ out, connect }) => out.list(await connect().images.list(), COLUMNS)));
  addCommand(images, {
    syntax: 'prepare <image>',
    summary: 'pulls an image and prepares it, so that sandboxes start at once',
    examples: ['coppice images prepare node:22-slim --cpus 2 --mem 2g'],
  })
    .option('--cpus <count>', 'also for this number of virtual CPUs', whole(1))
    .option('--mem <size>', 'also for this much memory, such as 2g', parseMiB)
    .option('--disk-size <size>', 'also for a scratch disk of this size', parseMiB)
    .action(
      action<PrepareOptions>(async (call) => {
        const { cpus, mem, diskSize } = call.options;
        const hasShape = cpus !== undefined || mem !== undefined || diskSize !== undefined;
        const shapes = hasShape ? [{ vcpus: cpus, memMiB: mem, diskMiB: diskSize }] : undefined;
        const building = call.connect().images.build(first(call), { shapes });
        const built = await call.out.during('pulling and preparing the image …', building);
        await call.out.result(built, `${built.image} is ${built.status}`);
      }),
    );
  addBuildCommands(images);
  addRemove(images);
}

function addRemove(images: Command): void {
  addCommand(images, {
    syntax: 'rm <image>',
    summary: 'deletes an image that was built',
    examples: ['coppice images rm built/app:1'],
  }).action(
    action(async (call) => {
      const image = first(call);
      await call.connect().images.delete(image);
      await call.out.result({ image, deleted: true }, `${image} is deleted`);
    }),
  );
}

function formatShape({ vcpus, memMiB, diskMiB }: ReadyShape): string {
  return `${vcpus} CPU ${formatMiB(memMiB)}, disk from ${formatMiB(diskMiB)}`;
}
