/**
 * `coppice admin image`: the operator's commands for images on the server itself. packages/cli starts it in the Node.js
 * of the service.
 */
import { parseArgs } from 'node:util';
import { AppError, DEFAULT_SHAPE, formatImageReference } from '@coppice/contract';
import { pino } from 'pino';
import { runCommand, UsageError } from './command-line.ts';
import { loadConfig } from '../config/config.ts';
import { RunnerClient } from '../control/placement/runner-client.ts';
import { RunnerConnection } from '../control/placement/runner-connection.ts';
import { lockInstance } from '../lib/process/instance-lock.ts';
import { DEFAULT_IMAGE_LIMITS } from '../runner/image/layers/image-limits.ts';
import { importLayout, parseLocalReference } from '../runner/image/local/layout-import.ts';
import { LocalImages } from '../runner/image/local/local-images.ts';

const MIB = 1024 ** 2;
/** Name of the operator in the fair queue for templates, alongside the organizations. */
const OPERATOR = 'operator';
const OPTIONS = { as: { type: 'string' }, name: { type: 'string' } } as const;

/** Imports an image. Returns its reference and the report for the operator. */
async function importImage(
  images: LocalImages,
  args: string[],
): Promise<{ reference: string; told: string }> {
  const { values, positionals } = parseArgs({ args, options: OPTIONS, allowPositionals: true });
  const [path] = positionals;
  if (path === undefined || positionals.length !== 1)
    throw new UsageError('name one layout directory or archive');
  if (values.as === undefined)
    throw new UsageError('--as is missing: the name of the image, local/<name>:<tag>');
  const { name, as } = values;
  const imported = await importLayout({ images, path, as, name, limits: DEFAULT_IMAGE_LIMITS });
  const { reference, digest, layers, sizeBytes, replaced } = imported;
  const lines = [
    `imported ${reference}`,
    `  digest ${digest}`,
    `  ${layers} layer${layers === 1 ? '' : 's'}, ${Math.ceil(sizeBytes / MIB)} MiB as stored`,
    ...(replaced === undefined
      ? []
      : [`  the name meant ${replaced} before; running sandboxes keep that image`]),
  ];
  return { reference, told: lines.join('\n') };
}

/** Has the service prepare the image, as `POST /v1/images/build` does. Returns the report for the operator. */
async function prepareImage(reference: string, socketPath: string): Promise<string> {
  using connection = new RunnerConnection({ kind: 'socket', path: socketPath }, pino({ level: 'silent' }));
  const runner = new RunnerClient(connection);
  try {
    await runner.status();
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'unavailable') throw error;
    return `The service does not run: it prepares the image at the first create of {"image": "${reference}"}.`;
  }
  for await (const event of runner.prepareImage({ image: reference, organization: OPERATOR, shapes: [] })) {
    if (event.type === 'error') throw notReady(event.error.message);
    if (event.type === 'done') return describeReady(reference);
  }
  throw notReady('the service stopped in the meantime');
}

function describeReady(reference: string): string {
  const { vcpus, mem_mib, disk_mib } = DEFAULT_SHAPE;
  const shape = `vCPUs: ${vcpus}, memory: ${mem_mib} MiB, disk: ${disk_mib} MiB`;
  return `Ready: a create of {"image": "${reference}"} in the default shape (${shape}) takes the fast path.`;
}

function notReady(why: string): AppError {
  return new AppError(
    'unavailable',
    `the image is imported, but not ready: ${why}; its first create tries again`,
  );
}

function removeImage(images: LocalImages, args: string[]): string {
  const { positionals } = parseArgs({ args, options: {}, allowPositionals: true });
  const [text] = positionals;
  if (text === undefined || positionals.length !== 1)
    throw new UsageError('name one image, local/<name>:<tag>');
  const reference = formatImageReference(parseLocalReference(text));
  if (!images.remove(reference))
    throw new AppError('image_not_found', `there is no imported image ${reference}`);
  return `removed ${reference}; running sandboxes keep it`;
}

function listImages(images: LocalImages): string {
  const names = images.list();
  if (names.length === 0) return 'no image has been imported';
  return names.map(({ reference, digest, imported_at: at }) => `${reference}  ${digest}  ${at}`).join('\n');
}

function tell(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Runs one command. Returns the reference of an imported image, else undefined. */
async function carryOut(directory: string, verb: string, args: string[]): Promise<string | undefined> {
  const images = new LocalImages(directory);
  // Without the lock, one of two simultaneous imports would remove the staged files of the other.
  await using _ = await lockInstance('image import', directory);
  if (verb === 'import') {
    const { reference, told } = await importImage(images, args);
    tell(told);
    return reference;
  }
  if (verb !== 'remove' && verb !== 'list')
    throw new UsageError(`unknown command "${verb}": expected import, list or remove`);
  tell(verb === 'remove' ? removeImage(images, args) : listImages(images));
  return undefined;
}

async function main(): Promise<void> {
  const [verb = '', ...args] = process.argv.slice(2);
  const { runner } = loadConfig();
  if (process.getuid?.() !== 0)
    throw new UsageError('run it as root: an imported image is booted for all organizations');
  const imported = await carryOut(runner.localImagesDir, verb, args);
  if (imported !== undefined) tell(await prepareImage(imported, runner.socketPath));
}

await runCommand('coppice admin image', main);
