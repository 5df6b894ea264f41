/**
 * Measures the preparation of an application image of about 300 MB that another runner has put into the object store, against its pull from
 * the registry, both with the template. Registry and S3 server are on this host, so their work competes for the same cores.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { ensureNodeImage } from '../../e2e/fixtures/images/node-image.ts';
import { startRegistry } from '../../e2e/fixtures/images/registry.ts';
import { storeIn } from '../../e2e/fixtures/disks/disk-store.ts';
import { Cluster, type Machine } from '../../e2e/fixtures/machines/cluster.ts';
import { chooseAccelerator } from '../../e2e/fixtures/service/accelerator.ts';
import { API_KEY } from '../../e2e/fixtures/service/service.ts';
import { ObjectServer } from '../../packages/server/src/lib/objects/testing/object-server.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { pushApplication } from '../fixtures/application-image.ts';
import { timeMs } from '../fixtures/measure.ts';
import { compare, report, type Figure } from '../fixtures/report.ts';

/** The first round does not count. */
const VARIANTS = 4;
const STORE_MS = 600_000;
const POLL_MS = 500;

/** Has the runner of this control prepare an image, with the template. Returns the time in milliseconds. */
function prepare({ address }: Machine, image: string): Promise<number> {
  return timeMs(async () => {
    const answer = await fetch(`${address}/v1/images/build`, {
      method: 'POST',
      headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' },
      body: JSON.stringify({ image }),
    });
    if (!answer.ok) throw new Error(`${image}: ${answer.status}: ${await answer.text()}`);
  });
}

/** Returns how often the runners' logs have this message. */
function countOf(machines: readonly Machine[], message: string): number {
  return machines.reduce((sum, { log }) => sum + log.split(`"${message}"`).length - 1, 0);
}

async function benchFetchImage(): Promise<Figure[]> {
  await using stack = new AsyncDisposableStack();
  const directory = mkdtempSync('/var/tmp/coppice-bench-images-');
  stack.defer(() => rmSync(directory, { recursive: true, force: true }));
  const registry = stack.use(await startRegistry({ directory }));
  const { layoutDirectory, tag } = await ensureNodeImage();
  const image = await pushApplication(registry, { layoutDirectory, tag }, VARIANTS);
  const server = stack.use(await ObjectServer.start());
  const env = { ...storeIn(server), COPPICE_INSECURE_REGISTRIES: registry.name };
  const cluster = stack.use(await Cluster.start({ env }));
  await cluster.untilBalanced();
  const [one, other] = cluster.controls;
  const names = Array.from({ length: VARIANTS }, (_, index) => `${registry.name}/app:${index + 1}`);
  const pulled: number[] = [];
  const fetched: number[] = [];
  for (const [index, name] of names.entries()) {
    pulled.push(await prepare(one, name));
    // Uploads take processor time, too.
    await pollUntil({ step: 'the upload', timeoutMs: STORE_MS, intervalMs: POLL_MS }, () =>
      countOf(cluster.runners, 'image stored') > index ? true : undefined,
    );
    fetched.push(await prepare(other, name));
  }
  if (countOf(cluster.runners, 'image fetched') !== VARIANTS) throw new Error('some images were not fetched');
  const values = new Map([
    ['fetched', fetched.slice(1)],
    ['pulled and flattened', pulled.slice(1)],
  ]);
  const name = 'preparation of an image that another runner has stored';
  const figure = compare({ name, against: 'its pull from the registry', goal: '–', unit: 'ms', values });
  const { sizeMB, compressedMB } = image;
  return [
    { ...figure, note: `${Math.round(sizeMB)} MB unpacked, ${Math.round(compressedMB)} MB in the registry` },
  ];
}

const figures = await benchFetchImage();
report('fetch-image', await chooseAccelerator(), figures);
