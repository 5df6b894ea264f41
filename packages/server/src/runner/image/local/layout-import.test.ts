/** Imports of layouts, valid and hostile, from directories and from archives of GNU tar. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { AppError, type ErrorCode } from '@coppice/contract';
import {
  OciLayout,
  type Descriptor,
  type ImageSpec,
} from '../../../../../../e2e/fixtures/images/oci-layout.ts';
import { DEFAULT_IMAGE_LIMITS } from '../layers/image-limits.ts';
import { importLayout, type ImportedImage } from './layout-import.ts';
import { LocalImages } from './local-images.ts';

const HELLO: ImageSpec = {
  layers: [
    { entries: [{ path: 'hello', content: 'hello' }] },
    { entries: [{ path: 'b' }], compression: 'zstd' },
  ],
};

let root: string;

before(async () => {
  root = await mkdtemp(join(tmpdir(), 'coppice-import-'));
});

after(() => rm(root, { recursive: true, force: true }));

interface Site {
  images: LocalImages;
  directory: string;
  layout: OciLayout;
  import: (path?: string, more?: { as?: string; name?: string }) => Promise<ImportedImage>;
}

async function makeSite(): Promise<Site> {
  const place = await mkdtemp(join(root, 'site-'));
  const directory = join(place, 'local');
  const images = new LocalImages(directory);
  const layout = await OciLayout.create(join(place, 'layout'));
  const limits = { ...DEFAULT_IMAGE_LIMITS, minFreeBytes: 0 };
  return {
    images,
    directory,
    layout,
    import: (path = layout.directory, { as = 'local/app:1', name } = {}) =>
      importLayout({ images, path, as, name, limits }),
  };
}

async function withHello(): Promise<Site & { image: Descriptor }> {
  const site = await makeSite();
  const image = await site.layout.addImage(HELLO);
  await site.layout.tag('1', image);
  return { ...site, image };
}

function archive(directory: string, ...options: string[]): string {
  const path = `${directory}.tar`;
  execFileSync('tar', ['-C', directory, ...options, '-cf', path, '.'], { timeout: 20_000 });
  return path;
}

async function assertRefused(
  site: Site,
  work: Promise<unknown>,
  pattern: RegExp,
  code: ErrorCode = 'invalid_image',
) {
  await assert.rejects(work, (error) => {
    assert(error instanceof AppError, String(error));
    assert.equal(error.code, code);
    assert.match(error.message, pattern);
    return true;
  });
  // No file is left, and no image is listed.
  assert.deepEqual(site.images.list(), []);
  for (const part of ['layouts', 'staging']) {
    const path = join(site.directory, part);
    if (existsSync(path)) assert.deepEqual(readdirSync(path), []);
  }
}

test('a layout is imported from its directory and from an archive, and found by another process', async () => {
  for (const pack of [false, true]) {
    const site = await withHello();
    const path = pack ? archive(site.layout.directory) : site.layout.directory;
    const imported = await site.import(path);
    assert.deepEqual(
      [imported.reference, imported.digest, imported.layers, imported.replaced],
      ['local/app:1', site.image.digest, 2, undefined],
    );
    const { layoutPath } = new LocalImages(site.directory).get('local/app:1');
    const index = JSON.parse(readFileSync(join(layoutPath, 'index.json'), 'utf8')) as {
      manifests: Descriptor[];
    };
    assert.deepEqual(
      index.manifests.map(({ digest }) => digest),
      [site.image.digest],
    );
    assert.equal(readdirSync(join(layoutPath, 'blobs', 'sha256')).length, 4);
  }
});

test('from an index only the image for this machine is imported', async () => {
  const site = await makeSite();
  const own = await site.layout.addImage(HELLO);
  const other = await site.layout.addImage({ layers: [], architecture: 'arm64' });
  await site.layout.tag('1', await site.layout.addIndex([other, own]));
  assert.equal((await site.import()).digest, own.digest);
  const { layoutPath } = site.images.get('local/app:1');
  assert.equal(existsSync(join(layoutPath, 'blobs', other.digest.replace(':', '/'))), false);
});

test('an image of several is selected by its name in the layout', async () => {
  const site = await withHello();
  const second = await site.layout.addImage({ layers: [] });
  await site.layout.tag('2', second);
  await assertRefused(site, site.import(), /holds 2 images, choose one with --name: "1", "2"/u);
  await assertRefused(site, site.import(undefined, { name: '3' }), /--name "3": "1", "2"/u);
  assert.equal((await site.import(undefined, { name: '2' })).digest, second.digest);
});

test('an import over a name replaces it, and removing a name removes its layout', async () => {
  const site = await withHello();
  const first = await site.import();
  await site.import(undefined, { as: 'local/same:1' });
  const changed = await site.layout.addImage({ layers: [{ entries: [{ path: 'other' }] }] });
  await site.layout.tag('1', changed);
  assert.equal((await site.import()).replaced, first.digest);
  assert.equal(site.images.list().length, 2);
  assert.equal(readdirSync(join(site.directory, 'layouts')).length, 2);
  assert.equal(site.images.remove('local/same:1'), true);
  assert.equal(site.images.remove('local/same:1'), false);
  assert.equal(readdirSync(join(site.directory, 'layouts')).length, 1);
  assert.throws(
    () => site.images.get('local/same:1'),
    (error) =>
      error instanceof AppError &&
      error.code === 'image_not_found' &&
      /coppice admin image import/u.test(error.message),
  );
});

test('only names under local/ with a fixed tag are accepted', async () => {
  const site = await withHello();
  for (const as of ['app:1', 'docker.io/local/app:1', 'coppice/base:1', 'ghcr.io/a/b:1']) {
    await assertRefused(site, site.import(undefined, { as }), /"local\/<name>:<tag>"/u);
  }
  await assertRefused(site, site.import(undefined, { as: `local/a@${site.image.digest}` }), /no digest/u);
  for (const as of ['local/app', 'local/app:latest']) {
    await assertRefused(site, site.import(undefined, { as }), /tag/u, 'image_not_pinned');
  }
  for (const as of ['local/', 'local/../etc:1', 'local/App:1', ''])
    await assertRefused(site, site.import(undefined, { as }), /./u);
});

test('a path that is no layout is refused with a remedy', async () => {
  const site = await withHello();
  const { directory } = site.layout;
  await assertRefused(site, site.import('/nonexistent/layout'), /cannot be read \(ENOENT\)/u);
  await assertRefused(site, site.import('/dev/null'), /neither a directory nor an archive/u);
  const packed = archive(directory);
  execFileSync('gzip', ['-k', packed], { timeout: 20_000 });
  await assertRefused(site, site.import(`${packed}.gz`), /compressed; unpack it with gunzip/u);
  truncateSync(packed, 2100);
  await assertRefused(site, site.import(packed), /not a valid tar archive: the archive is cut/u);
  writeFileSync(packed, 'no archive'.repeat(200));
  await assertRefused(site, site.import(packed), /not a valid tar archive/u);
  rmSync(join(directory, 'oci-layout'));
  await assertRefused(site, site.import(), /no OCI layout: it has no oci-layout/u);
});

test('a docker-archive is refused with the command that converts it', async () => {
  const site = await makeSite();
  const directory = join(root, 'docker-archive');
  execFileSync('mkdir', ['-p', directory]);
  writeFileSync(join(directory, 'manifest.json'), '[]');
  await assertRefused(
    site,
    site.import(archive(directory)),
    /docker-archive; .*--format oci-archive.*skopeo copy/u,
  );
});

test('the error for a damaged or missing blob, or one of another size, names the blob', async () => {
  const damaged = await withHello();
  const [layer] = layerDigests(damaged);
  const path = damaged.layout.blobPath(layer!);
  const content = readFileSync(path);
  content[content.length - 1]! ^= 1;
  writeFileSync(path, content);
  await assertRefused(damaged, damaged.import(), new RegExp(`${layer} is damaged`, 'u'));
  truncateSync(path, 10);
  await assertRefused(damaged, damaged.import(), /has 10 bytes, its manifest says/u);
  rmSync(path);
  await assertRefused(damaged, damaged.import(), new RegExp(`${layer} is missing`, 'u'));
  writeFileSync(damaged.layout.blobPath(damaged.image.digest), '{}');
  await assertRefused(damaged, damaged.import(), new RegExp(`${damaged.image.digest} is damaged`, 'u'));
});

test('a layout that is, or contains, a symbolic link is refused', async () => {
  const site = await withHello();
  const { directory } = site.layout;
  const [layer] = layerDigests(site);
  const blob = site.layout.blobPath(layer!);
  renameSync(blob, join(root, 'outside'));
  symlinkSync(join(root, 'outside'), blob);
  await assertRefused(site, site.import(), /is a symbolic link/u);
  await assertRefused(site, site.import(archive(directory)), /is missing/u);
  const second = await withHello();
  const blobs = join(second.layout.directory, 'blobs');
  renameSync(blobs, join(root, 'blobs-outside'));
  symlinkSync(join(root, 'blobs-outside'), blobs);
  await assertRefused(second, second.import(), /is a symbolic link/u);
  symlinkSync(second.layout.directory, join(root, 'link-to-layout'));
  await assertRefused(second, second.import(join(root, 'link-to-layout')), /not a link to it/u);
});

test('an archive with two files of one name is refused', async () => {
  const site = await withHello();
  const path = archive(site.layout.directory);
  execFileSync('tar', ['-C', site.layout.directory, '-rf', path, './index.json'], { timeout: 20_000 });
  await assertRefused(site, site.import(path), /two files named "index.json"/u);
});

test('an image for another platform and a layout without images are refused', async () => {
  const foreign = await makeSite();
  await foreign.layout.tag('1', await foreign.layout.addImage({ layers: [], architecture: 'arm64' }));
  await assertRefused(foreign, foreign.import(), /linux\/arm64/u);
  const empty = await makeSite();
  await assertRefused(empty, empty.import(), /holds no image/u);
});

function layerDigests({ layout, image }: { layout: OciLayout; image: Descriptor }): string[] {
  const manifest = JSON.parse(readFileSync(layout.blobPath(image.digest), 'utf8')) as {
    layers: Descriptor[];
  };
  return manifest.layers.map(({ digest }) => digest);
}
