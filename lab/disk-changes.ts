/**
 * A persistent disk across power cuts: what its guest has synced, and what its snapshots hold, is still there. The sandbox
 * that has the disk is running when the power is cut, so its writes are partly in the object store and partly on the host.
 */
import assert from 'node:assert/strict';
import type { Coppice, CreateOptions, Sandbox } from '../packages/sdk/src/index.ts';
import { read } from './guest-state.ts';
import type { LabHost } from './host.ts';
import { SETTINGS } from './install.ts';
import type { LabService } from './lab-service.ts';
import type { DiskContents, Ledger } from './ledger.ts';
import { SMALL } from './short-list.ts';
import { waitFor } from './wait-for.ts';

const DISK = 'lab';
const FORK = 'lab-fork';
const TOKEN = '/workspace/token';
/** Overwritten with every write, so that one drain differs from the next by more than a page. */
const BULK = '/workspace/bulk';
const BULK_MIB = 4;
const AVAILABLE_TIMEOUT_MS = 10 * 60_000;
const POLL_MS = 1000;
const EXPORT_TIMEOUT_MS = 10 * 60_000;

export interface DiskParts {
  host: Pick<LabHost, 'run'>;
  service: Pick<LabService, 'client'>;
  ledger: Ledger;
}

/** Starts a sandbox with the disk, and writes a token that the guest syncs. The sandbox is left running. */
export async function writeToDisk({ service: { client }, ledger }: DiskParts, token: string): Promise<void> {
  if ((await client.getDisk(DISK)) === null) await client.createDisk({ name: DISK, sizeGb: 1 });
  const sandbox = await client.sandboxes.create({ ...SMALL, disk: DISK });
  const bulk = `dd if=/dev/urandom of=${BULK} bs=1M count=${BULK_MIB} conv=notrunc,fsync 2>&1 && sha256sum ${BULK}`;
  const sum = (await read(sandbox, bulk)).split('\n').at(-2)?.split(' ', 1)[0] ?? '';
  await read(
    sandbox,
    `echo ${token} > ${TOKEN}.new && sync ${TOKEN}.new && mv ${TOKEN}.new ${TOKEN} && sync /workspace`,
  );
  ledger.acknowledged.disk = { token, sum };
}

/** Snapshots the disk, attached or not. */
export async function snapshotTheDisk(
  { service: { client }, ledger }: DiskParts,
  name: string,
): Promise<void> {
  const { disk } = ledger.acknowledged;
  assert.ok(disk !== undefined, 'the disk has been written');
  await client.snapshotDisk(DISK, { name });
  ledger.acknowledged.diskSnapshots[name] = disk;
}

/** Checks that all snapshots of the disk in the ledger are listed. */
export async function checkDiskSnapshots({
  service: { client },
  ledger,
}: Omit<DiskParts, 'host'>): Promise<void> {
  const wanted = Object.keys(ledger.acknowledged.diskSnapshots);
  if (wanted.length === 0) return;
  const listed = new Set((await client.listDiskSnapshots(DISK)).map(({ name }) => name));
  for (const name of wanted) assert.ok(listed.has(name), `snapshot ${name} of the disk is listed`);
}

/** Checks the contents of the disk and of a fork of its last snapshot, and the file system of the disk as stored. */
export async function checkDiskContents(parts: DiskParts): Promise<void> {
  const { client } = parts.service;
  const { disk, diskSnapshots } = parts.ledger.acknowledged;
  if (disk === undefined) return;
  await untilAvailable(client);
  await checkContents(client, { disk: DISK }, disk);
  const [name, held] = Object.entries(diskSnapshots).at(-1) ?? [];
  if (name !== undefined && held !== undefined) {
    // Of an earlier check that failed.
    if ((await client.getDisk(FORK)) !== null) await client.deleteDisk(FORK);
    await checkContents(client, { disk: FORK, forkFromDisk: DISK, diskSnapshot: name }, held);
    await client.deleteDisk(FORK);
  }
  await checkFileSystem(parts);
}

async function untilAvailable(client: Coppice): Promise<void> {
  let last = 'no answer';
  const failure = (): string => `the disk does not become available: ${last}`;
  await waitFor({ timeoutMs: AVAILABLE_TIMEOUT_MS, intervalMs: POLL_MS, failure }, async () => {
    const disk = await client.getDisk(DISK);
    last = JSON.stringify(disk);
    assert.ok(disk !== null, 'the disk is there');
    return disk.status === 'available' || undefined;
  });
}

async function checkContents(
  client: Coppice,
  options: CreateOptions,
  { token, sum }: DiskContents,
): Promise<void> {
  // Its end destroys it, and does not hide why the check failed.
  await using sandbox = await client.sandboxes.create({ ...SMALL, ...options });
  await assertContents(sandbox, `${token}\n${sum}\n`);
}

async function assertContents(sandbox: Sandbox, wanted: string): Promise<void> {
  const found = await read(sandbox, `cat ${TOKEN}; sha256sum ${BULK} | cut -d ' ' -f 1`);
  assert.equal(found, wanted, 'the disk holds what was synced');
  const complaints = await read(sandbox, "dmesg | grep -c -e 'EXT4-fs error' -e 'I/O error' || true");
  assert.equal(complaints, '0\n', 'the kernel of the guest reports no error');
}

/** Runs `e2fsck` on the host over an export of the disk. The key is in a file there, so that no process list shows it. */
async function checkFileSystem({ host }: Pick<DiskParts, 'host'>): Promise<void> {
  const image = '/var/tmp/lab-disk.img';
  const header = '"authorization: Bearer $COPPICE_BOOTSTRAP_KEY"';
  const fetchImage = `echo ${header} | curl -sfS -H @- http://127.0.0.1:8080/v1/disks/${DISK}/content`;
  const { exitCode, output } = await host.run(
    `set -o pipefail; . ${SETTINGS}; ${fetchImage} | cp --sparse=always /dev/stdin ${image} && e2fsck -fn ${image}; ` +
      `code=$?; rm -f ${image}; exit $code`,
    { allowFailure: true, timeoutMs: EXPORT_TIMEOUT_MS },
  );
  assert.equal(exitCode, 0, output);
}
