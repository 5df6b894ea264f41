/**
 * Measures a restore of a snapshot that only the object store has, to the first exec, against a restore of the local copy,
 * for several amounts of written memory and several bandwidths of the link with the store. The S3 server is on this host, in a network
 * namespace of its own, so its work competes for the same cores. `--quick` only tests the benchmark.
 */
import { CloneApi } from '../../e2e/fixtures/clones/clone-api.ts';
import { StoredCaptures } from '../../e2e/fixtures/captures/stored-captures.ts';
import { Api } from '../../e2e/fixtures/api/api.ts';
import { storeIn } from '../../e2e/fixtures/disks/disk-store.ts';
import { ClusterNetwork } from '../../e2e/fixtures/machines/cluster-network.ts';
import { Service } from '../../e2e/fixtures/service/service.ts';
import { ObjectServer } from '../../packages/server/src/lib/objects/testing/object-server.ts';
import { interleave, summarize, timeMs } from '../fixtures/measure.ts';
import { compare, report, type Figure } from '../fixtures/report.ts';

const IS_QUICK = process.argv.includes('--quick');
const ROUNDS = IS_QUICK ? 1 : 5;
const WRITTEN_MIB = IS_QUICK ? [16] : [0, 64, 256, 512];
/** Of these, with limited bandwidths, too, in Mbit/s. */
const LIMITED_MIB = IS_QUICK ? [16] : [0, 256];
const BANDWIDTHS = IS_QUICK ? [100] : [1000, 250, 100];
const STORE = 'store';
const BODY = { image: 'coppice/base:1', mem_mib: 2048, timeout: 0 };
const MIB = 1024 ** 2;
const FILL_TIMEOUT_S = 300;
const AGAINST = 'a restore of the local copy';

interface Stage {
  network: ClusterNetwork;
  api: Api;
  clones: CloneApi;
  stored: StoredCaptures;
}

/** Makes a snapshot of a sandbox that has written so much memory, which does not compress, and waits until it is stored. */
async function makeSnapshot(
  { api, clones, stored }: Stage,
  writtenMiB: number,
): Promise<{ id: string; bytes: number }> {
  const sandbox = await api.create(BODY);
  const fill = `head -c ${writtenMiB}M /dev/urandom > /dev/shm/noise`;
  const { exit_code: code, stderr } = await api.exec(sandbox.id, fill, { timeout: FILL_TIMEOUT_S });
  if (code !== 0) throw new Error(`writing ${writtenMiB} MiB: ${stderr}`);
  const id = await clones.snapshot(sandbox.id);
  const { stored_bytes: bytes } = await stored.untilStored(id);
  await api.destroy(sandbox.id);
  return { id, bytes };
}

async function benchSize(stage: Stage, writtenMiB: number): Promise<Figure[]> {
  const { clones, network } = stage;
  const { id, bytes } = await makeSnapshot(stage, writtenMiB);
  const figures: Figure[] = [];
  for (const mbit of [undefined, ...(LIMITED_MIB.includes(writtenMiB) ? BANDWIDTHS : [])]) {
    using _ = mbit === undefined ? undefined : network.limit(STORE, mbit);
    figures.push(await benchRestore(stage, { id, bytes, writtenMiB, mbit }));
  }
  await clones.deleteSnapshot(id);
  const size = summarize(`stored, ${writtenMiB} MiB written`, 'MiB', [bytes / MIB]);
  return [...figures, { name: size.name, against: '–', ratio: undefined, goal: '–', samples: [size] }];
}

interface Stored {
  id: string;
  bytes: number;
  writtenMiB: number;
  /** Undefined: as fast as this machine. */
  mbit: number | undefined;
}

async function benchRestore(
  { api, clones, stored }: Stage,
  { id, bytes, writtenMiB, mbit }: Stored,
): Promise<Figure> {
  const restore = async (): Promise<number> => {
    let made = '';
    const elapsedMs = await timeMs(async () => {
      made = (await clones.restore(id)).id;
      await api.exec(made, 'true');
    });
    await api.destroy(made);
    return elapsedMs;
  };
  const link = mbit === undefined ? '' : `, ${mbit} Mbit/s`;
  const name = `restore from objects, ${writtenMiB} MiB written${link}`;
  const fetched = async (): Promise<number> => {
    await stored.drop(id);
    return restore();
  };
  // The copy that the restore before has fetched, whose files were read at least once.
  const contenders = [
    { name, run: fetched },
    { name: `${AGAINST}, ${writtenMiB} MiB written${link}`, run: restore },
  ];
  const values = await interleave(contenders, ROUNDS);
  const figure = compare({ name, against: AGAINST, goal: '–', unit: 'ms', values });
  const extraS = (figure.ours.median - figure.floor.median) / 1000;
  figure.note = `${Math.round(bytes / MIB)} MiB are stored; the difference is ${Math.round(bytes / MIB / extraS)} MiB/s of stored bytes.`;
  return figure;
}

async function benchRestoreRemote(): Promise<{ figures: Figure[]; accelerator: string }> {
  using network = ClusterNetwork.create([STORE]);
  const address = network.addressOf(STORE);
  await using server = await ObjectServer.start({ address, inside: network.inside(STORE) });
  await using service = await Service.start({ instance: 3, env: storeIn(server) });
  using stored = new StoredCaptures(service, server.bucketDirectory);
  const api = new Api(service);
  const figures: Figure[] = [];
  for (const writtenMiB of WRITTEN_MIB)
    figures.push(...(await benchSize({ network, api, clones: new CloneApi(api), stored }, writtenMiB)));
  return { figures, accelerator: await service.readAccelerator() };
}

const { figures, accelerator } = await benchRestoreRemote();
report(`restore-remote${IS_QUICK ? '-quick' : ''}`, accelerator, figures);
