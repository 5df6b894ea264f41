/** Measures the disk space that the file system has allocated for an image, its template and each sandbox. */
import { existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { IMAGE, startBenchService, type BenchService } from './fixtures/bench-service.ts';
import { summarize } from './fixtures/measure.ts';
import { report, type Figure } from './fixtures/report.ts';

const COUNT = 10;
const WRITTEN_MIB = 16;
const BLOCK_BYTES = 512;
const MIB = 1024 ** 2;

function allocatedMiB(path: string): number {
  if (!existsSync(path)) return 0;
  const names = readdirSync(path, { recursive: true, encoding: 'utf8' });
  const blocks = names.map((name) => lstatSync(join(path, name)).blocks);
  return (blocks.reduce((sum, each) => sum + each, 0) * BLOCK_BYTES) / MIB;
}

interface Manifest {
  layers: { size: number }[];
}

/** Returns the size of the image's compressed layers, which a registry transfers. */
function compressedMiB(layoutDirectory: string): number {
  const blobs = join(layoutDirectory, 'blobs', 'sha256');
  const index = JSON.parse(readFileSync(join(layoutDirectory, 'index.json'), 'utf8')) as {
    manifests: { digest: string }[];
  };
  const digest = index.manifests[0]?.digest.replace('sha256:', '') ?? '';
  const { layers } = JSON.parse(readFileSync(join(blobs, digest), 'utf8')) as Manifest;
  return layers.reduce((sum, layer) => sum + layer.size, 0) / MIB;
}

export async function benchFootprint(bench: BenchService): Promise<Figure[]> {
  const { api, service } = bench;
  const runner = join(service.dataDir, 'runner');
  const vms = join(runner, 'vms');
  const before = allocatedMiB(vms);
  const ids: string[] = [];
  for (let made = 0; made < COUNT; made += 1) ids.push((await api.create({ image: IMAGE })).id);
  const idle = (allocatedMiB(vms) - before) / COUNT;
  const write = `head -c ${WRITTEN_MIB}M /dev/urandom > /tmp/written && sync`;
  for (const id of ids) await api.exec(id, write);
  const written = (allocatedMiB(vms) - before) / COUNT;
  for (const id of ids) await api.destroy(id);
  const left = allocatedMiB(vms) - before;
  const image = allocatedMiB(join(runner, 'images'));
  const compressed = compressedMiB(bench.layoutDirectory);
  const figure = (name: string, values: number[]) => summarize(name, 'MiB', values);
  return [
    {
      name: 'an image on disk',
      against: "its registry's compressed layers",
      goal: '–',
      ratio: image / compressed,
      samples: [
        figure('image, one squashfs', [image]),
        figure('its layers as the registry has them', [compressed]),
        figure('its template (memory, device state, disk)', [allocatedMiB(join(runner, 'templates'))]),
        figure('an idle sandbox', [idle]),
        figure(`a sandbox that has written ${WRITTEN_MIB} MiB`, [written]),
      ],
      note: `${COUNT} sandboxes; after their end ${left.toFixed(2)} MiB of them are left.`,
    },
  ];
}

if (import.meta.main) {
  await using bench = await startBenchService(0);
  report('footprint', bench.accelerator, await benchFootprint(bench));
}
