/** `coppice image`: what the operator does with images on the server itself. Started by packages/cli with the Node.js of the service. */
import { parseArgs } from 'node:util';
import { AppError, formatImageReference } from '@coppice/contract';
import { runCommand, UsageError } from './command-line.ts';
import { loadConfig } from './config/config.ts';
import { lockInstance } from './lib/instance-lock.ts';
import { DEFAULT_IMAGE_LIMITS } from './runner/image/image-limits.ts';
import { importLayout, parseLocalReference } from './runner/image/local/layout-import.ts';
import { LocalImages } from './runner/image/local/local-images.ts';

const MIB = 1024 ** 2;
const OPTIONS = { as: { type: 'string' }, name: { type: 'string' } } as const;

async function importImage(images: LocalImages, args: string[]): Promise<string> {
  const { values, positionals } = parseArgs({ args, options: OPTIONS, allowPositionals: true });
  const [path] = positionals;
  if (path === undefined || positionals.length !== 1)
    throw new UsageError('name one layout directory or archive');
  if (values.as === undefined)
    throw new UsageError('--as is missing: the name to give it, local/<name>:<tag>');
  const { name, as } = values;
  const imported = await importLayout({ images, path, as, name, limits: DEFAULT_IMAGE_LIMITS });
  const { reference, digest, layers, sizeBytes, replaced } = imported;
  const lines = [
    `imported ${reference}`,
    `  digest ${digest}`,
    `  ${layers} layer${layers === 1 ? '' : 's'}, ${Math.ceil(sizeBytes / MIB)} MiB as stored`,
    ...(replaced === undefined ? [] : [`  the name meant ${replaced} before; sandboxes that run keep that`]),
    `The service prepares it at the first create of {"image": "${reference}"}.`,
  ];
  return lines.join('\n');
}

function removeImage(images: LocalImages, args: string[]): string {
  const { positionals } = parseArgs({ args, options: {}, allowPositionals: true });
  const [text] = positionals;
  if (text === undefined || positionals.length !== 1)
    throw new UsageError('name one image, local/<name>:<tag>');
  const reference = formatImageReference(parseLocalReference(text));
  if (!images.remove(reference))
    throw new AppError('image_not_found', `there is no imported image ${reference}`);
  return `removed ${reference}; sandboxes that run from it are not touched`;
}

function listImages(images: LocalImages): string {
  const names = images.list();
  if (names.length === 0) return 'no image has been imported';
  return names.map(({ reference, digest, imported_at: at }) => `${reference}  ${digest}  ${at}`).join('\n');
}

async function main(): Promise<void> {
  const [verb, ...args] = process.argv.slice(2);
  const { runner } = loadConfig();
  const images = new LocalImages(runner.localImagesDir);
  if (process.getuid?.() !== 0) throw new UsageError('run it as root: images are booted for everybody');
  // Of two at once one would sweep what the other has staged.
  await using _ = await lockInstance('image import', runner.localImagesDir);
  if (verb === 'import') process.stdout.write(`${await importImage(images, args)}\n`);
  else if (verb === 'remove') process.stdout.write(`${removeImage(images, args)}\n`);
  else if (verb === 'list') process.stdout.write(`${listImages(images)}\n`);
  else throw new UsageError(`unknown command "${verb ?? ''}": it is import, list or remove`);
}

await runCommand('coppice image', main);
