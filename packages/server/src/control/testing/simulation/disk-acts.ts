/** Random work with disks, and what callers were answered about them. */
import assert from 'node:assert/strict';
import type { DiskRecord, DiskSnapshotRecord, SandboxRecord } from '@coppice/contract';
import type { SeededChoice } from '../seeded-choice.ts';
import type { Ask } from './caller.ts';
import { parseReply, type Reply, type RestingService } from './resting-service.ts';

const MAX_DISKS = 12;
const NO_DISK = 'no-disk';
const NO_SNAPSHOT = 'no-snapshot';

export class DiskActs {
  readonly #ask: Ask;
  readonly #choice: SeededChoice;
  /** Snapshots of disks that were answered, and that no caller has asked to delete. */
  readonly #told = new Map<string, Set<string>>();
  /** All names that may exist. */
  readonly #seen = new Set<string>();
  #count = 0;

  constructor(ask: Ask, choice: SeededChoice) {
    this.#ask = ask;
    this.#choice = choice;
  }

  /** Chooses an act. Two acts at once may be on one disk. */
  choose(): () => Promise<unknown> {
    this.#count += 1;
    const disk = this.#choice.of([...this.#seen, NO_DISK]);
    const snapshot = this.#choice.of([...(this.#told.get(disk) ?? []), NO_SNAPSHOT]);
    const number = this.#count;
    const create = () => this.#make('/v1/disks', { name: `d${number}`, size_gb: 1 + number });
    if (this.#seen.size === 0) return create;
    const fork = () => this.#make(`/v1/disks/${disk}/fork`, { snapshot, name: `d${number}` });
    return this.#choice.of([
      ...(this.#seen.size < MAX_DISKS ? [create, fork] : []),
      () => this.#snapshot(disk, `s${number}`),
      () => this.#snapshot(disk, `s${number}`),
      () => this.#deleteSnapshot(disk, snapshot),
      () => this.#delete(disk),
      () => this.#ask({ method: 'PATCH', path: `/v1/disks/${disk}`, body: { size_gb: 100 + number } }),
      () => this.#ask({ method: 'POST', path: `/v1/disks/${disk}/flush` }),
      () => this.#ask({ method: 'GET', path: `/v1/disks/${disk}` }),
    ]);
  }

  /** Returns the disk options of a create; mostly none. */
  chooseForCreate(): object {
    if (this.#choice.below(2) === 0) return {};
    const disk = this.#choice.of([...this.#seen, NO_DISK]);
    const snapshot = this.#choice.of([...(this.#told.get(disk) ?? []), NO_SNAPSHOT]);
    return this.#choice.below(3) === 0 ? { fork_from_disk: disk, disk_snapshot: snapshot } : { disk };
  }

  /** Notes the disk of a sandbox that was answered. */
  noteSandbox({ disk }: Partial<SandboxRecord>): void {
    if (disk === undefined || disk === null) return;
    this.#seen.add(disk.name);
  }

  /** Checks at rest that disks and snapshots that were answered exist, and forgets those that do not any more. */
  async assertKept(service: RestingService): Promise<void> {
    const disks = await list<DiskRecord>(service, '/v1/disks?limit=500');
    const names = new Set(disks.map(({ name }) => name));
    for (const [disk, snapshots] of this.#told) {
      assert.ok(names.has(disk), `the disk ${disk}, which was answered, is gone`);
      if (snapshots.size === 0) continue;
      const kept = await list<DiskSnapshotRecord>(service, `/v1/disks/${disk}/snapshots?limit=500`);
      const missing = [...snapshots].filter((name) => !kept.some((one) => one.name === name));
      assert.deepEqual(missing, [], `snapshots of the disk ${disk} that were answered are gone`);
    }
    for (const name of this.#seen) if (!names.has(name)) this.#seen.delete(name);
    for (const name of names) this.#seen.add(name);
  }

  async #make(path: string, body: { name: string; [field: string]: unknown }): Promise<void> {
    this.#seen.add(body.name);
    const reply = await this.#ask({ method: 'POST', path, body });
    if (reply?.status === 201) this.#told.set(body.name, new Set());
  }

  async #snapshot(disk: string, name: string): Promise<void> {
    const reply = await this.#ask({ method: 'POST', path: `/v1/disks/${disk}/snapshots`, body: { name } });
    if (reply?.status === 201) this.#told.get(disk)?.add(name);
  }

  async #deleteSnapshot(disk: string, name: string): Promise<void> {
    this.#told.get(disk)?.delete(name);
    await this.#ask({ method: 'DELETE', path: `/v1/disks/${disk}/snapshots/${name}` });
  }

  async #delete(disk: string): Promise<void> {
    const snapshots = this.#told.get(disk);
    this.#told.delete(disk);
    const reply = await this.#ask({ method: 'DELETE', path: `/v1/disks/${disk}` });
    if (reply?.status === 409 && snapshots !== undefined) this.#told.set(disk, snapshots);
  }
}

async function list<T>(service: RestingService, path: string): Promise<T[]> {
  const reply: Reply | undefined = await service.call('GET', path);
  assert.equal(reply?.status, 200, `GET ${path}`);
  return parseReply(reply) as T[];
}
