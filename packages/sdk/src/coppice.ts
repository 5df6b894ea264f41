import {
  fetchStatement,
  fetchUsage,
  listHistory,
  type HistoryEntry,
  type HistoryOptions,
  type Statement,
  type Usage,
} from './billing.ts';
import { resolveClientOptions, type CallOptions, type ClientOptions } from './transport/client-options.ts';
import {
  createDisk,
  deleteDisk,
  deleteDiskSnapshot,
  exportDisk,
  findDisk,
  flushDisk,
  forkDisk,
  growDisk,
  importDisk,
  listDisks,
  listDiskSnapshots,
  snapshotDisk,
  type CreateDiskOptions,
  type DiskInfo,
  type DiskSnapshotInfo,
  type ExportDiskOptions,
  type ForkDiskOptions,
  type ImportDiskOptions,
  type ListDisksOptions,
  type SnapshotDiskOptions,
} from './disks.ts';
import type { CreateCallOptions } from './transport/post-once.ts';
import type { FileContent } from './transport/upload.ts';
import type { EventInfo, LostEvents } from './events/event-record.ts';
import { listEvents, readEvents, type EventsOptions, type ListEventsOptions } from './events/events.ts';
import { fetchNetworkProfiles, type NetworkProfile } from './egress.ts';
import { ImageBuilds } from './image-builds.ts';
import { Images } from './images.ts';
import { describeObject, INSPECT, type InspectArguments } from './transport/inspect.ts';
import type { PagedList } from './transport/paged-list.ts';
import { Organization } from './organization.ts';
import { Budgets } from './budgets.ts';
import { Registries } from './registries.ts';
import { Secrets } from './secrets.ts';
import { Sandboxes } from './sandbox/sandboxes.ts';
import { Snapshots } from './sandbox/snapshots.ts';
import { Webhooks } from './webhooks/webhooks.ts';
import { Transport } from './transport/transport.ts';

/**
 * The client of one Coppice service. The constructor throws `TypeError` when there is no API key (option `apiKey` or
 * environment variable `SANDBOX_API_KEY`), or when an option or such a variable is invalid.
 *
 * Every call rejects with {@link CoppiceError} when it fails, with `TypeError` when an argument is invalid, and with
 * the reason of the caller's signal when it is aborted.
 *
 * @example
 * const client = new Coppice({ baseUrl: 'http://127.0.0.1:8080', apiKey: 'cop_live_us_…' });
 * await using sandbox = await client.sandboxes.create();
 * console.log((await sandbox.exec('uname -a')).stdout);
 */
export class Coppice {
  /** Address of the service, without a slash at its end. */
  readonly baseUrl: string;
  /** Creates, restores, finds and lists sandboxes. */
  readonly sandboxes: Sandboxes;
  /** Finds, lists, changes and deletes snapshots. */
  readonly snapshots: Snapshots;
  /** Lists images and prepares them ahead of their first use. */
  readonly images: Images;
  /** Reads the audit log of your organization. */
  readonly organization: Organization;
  /** Builds images from steps or Dockerfiles. */
  readonly builds: ImageBuilds;
  /** Stores credentials for private image registries. */
  readonly registries: Registries;
  /** Stores secrets under names, for the credentials of sandboxes. */
  readonly secrets: Secrets;
  /** Sets budgets, which make events when a month costs too much. */
  readonly budgets: Budgets;
  /** Sends events to your own servers. */
  readonly webhooks: Webhooks;
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    const transport = new Transport(resolveClientOptions(options));
    this.#transport = transport;
    this.baseUrl = transport.baseUrl;
    this.sandboxes = new Sandboxes(transport);
    this.snapshots = new Snapshots(transport);
    this.images = new Images(transport);
    this.organization = new Organization(transport);
    this.builds = new ImageBuilds(transport);
    this.registries = new Registries(transport);
    this.secrets = new Secrets(transport);
    this.budgets = new Budgets(transport);
    this.webhooks = new Webhooks(transport);
  }

  [INSPECT](...print: InspectArguments): string {
    return describeObject('Coppice', { baseUrl: this.baseUrl }, print);
  }

  /**
   * Fetches the usage and the cost of your organization, up to now. A key that is limited to its team gets those of the
   * team.
   *
   * @example
   * const { totalCostCents, creditLeftCents } = await client.usage();
   */
  usage(options: CallOptions = {}): Promise<Usage> {
    return fetchUsage(this.#transport, options);
  }

  /**
   * Lists sandboxes that have ended, newest end first. Await the list for all entries, or iterate over it. Throws
   * `TypeError` for an invalid `limit`.
   *
   * @example
   * for await (const { id, costCents } of client.history({ labels: { job: 'nightly' } })) console.log(id, costCents);
   */
  history(options: HistoryOptions = {}): PagedList<HistoryEntry> {
    return listHistory(this.#transport, options);
  }

  /**
   * Lists the network profiles of the service, with the rules that it enforces.
   *
   * @example
   * for (const { name, description } of await client.networkProfiles()) console.log(name, description);
   */
  networkProfiles(options: CallOptions = {}): Promise<NetworkProfile[]> {
    return fetchNetworkProfiles(this.#transport, options);
  }

  /**
   * Fetches what your organization owes for a month in UTC, with a line for each sandbox that ran in that month.
   * `month` has the form `2026-11`. Throws `TypeError` if `month` is empty.
   *
   * @example
   * const { costCents, complete } = await client.statement('2026-11');
   */
  statement(month: string, options: CallOptions = {}): Promise<Statement> {
    return fetchStatement(this.#transport, month, options);
  }

  /**
   * Yields the events of your organization as they happen, without an end: leave the loop, or abort the signal. It
   * continues after lost connections, and repeats nothing. Without `after` it begins with the next event. Events that
   * the service no longer keeps are reported as one event of type `lost`.
   *
   * @example
   * for await (const event of client.events({ types: ['sandbox.failed'] })) console.log(event);
   */
  events(options: EventsOptions = {}): AsyncGenerator<EventInfo | LostEvents, never> {
    return readEvents(this.#transport, options);
  }

  /**
   * Lists the events that the service keeps, oldest first. Await the list for all of them, or iterate over it. Rejects
   * with code `events_lost` when events after `after` are no longer kept. Throws `TypeError` for an invalid `limit`.
   *
   * @example
   * for await (const { type, timestamp } of client.listEvents({ runId: sandbox.id })) console.log(timestamp, type);
   */
  listEvents(options: ListEventsOptions = {}): PagedList<EventInfo> {
    return listEvents(this.#transport, options);
  }

  /**
   * Creates a persistent disk with an empty file system. Rejects with code `already_exists` when the name is taken, and
   * `capacity` beyond the limits of your organization.
   *
   * @example
   * await client.createDisk({ name: 'data', sizeGb: 20 });
   * const sandbox = await client.sandboxes.create({ disk: 'data' });
   */
  createDisk(options: CreateDiskOptions, call: CreateCallOptions = {}): Promise<DiskInfo> {
    return createDisk(this.#transport, options, call);
  }

  /**
   * Fetches a disk. Resolves with null when there is none.
   *
   * @example
   * const disk = await client.getDisk('data');
   * console.log(disk?.status, disk?.attachedTo);
   */
  getDisk(name: string, options: CallOptions = {}): Promise<DiskInfo | null> {
    return findDisk(this.#transport, name, options);
  }

  /**
   * Lists disks, newest first, as the service last saw them. Await the list for all of them, or iterate over it. Throws
   * `TypeError` for an invalid `limit`.
   *
   * @example
   * for await (const { name, storedBytes } of client.listDisks()) console.log(name, storedBytes);
   */
  listDisks(options: ListDisksOptions = {}): PagedList<DiskInfo> {
    return listDisks(this.#transport, options);
  }

  /**
   * Grows a disk, also while a sandbox uses it. Rejects with code `invalid_request` for a smaller size.
   *
   * @example
   * await client.growDisk('data', 40);
   */
  growDisk(name: string, sizeGb: number, options: CallOptions = {}): Promise<DiskInfo> {
    return growDisk(this.#transport, name, sizeGb, options);
  }

  /**
   * Waits until everything that was written to a disk before is in the object store.
   *
   * @example
   * const { drainedVersion } = await client.flushDisk('data');
   */
  flushDisk(name: string, options: CallOptions = {}): Promise<DiskInfo> {
    return flushDisk(this.#transport, name, options);
  }

  /**
   * Deletes a disk with its data and its snapshots. Rejects with code `disk_in_use` while a sandbox has it, and
   * `disk_has_forks` while disks that were forked from it exist.
   *
   * @example
   * await client.deleteDisk('data');
   */
  deleteDisk(name: string, options: CallOptions = {}): Promise<void> {
    return deleteDisk(this.#transport, name, options);
  }

  /**
   * Takes a snapshot of a disk, also while a sandbox uses it. With `sync`, the file system is written out first.
   *
   * @example
   * await client.snapshotDisk('data', { name: 'clean', sync: true });
   */
  snapshotDisk(
    disk: string,
    options: SnapshotDiskOptions,
    call: CreateCallOptions = {},
  ): Promise<DiskSnapshotInfo> {
    return snapshotDisk(this.#transport, { disk, options }, call);
  }

  /**
   * Lists the snapshots of a disk, newest first. Throws `TypeError` for an invalid `limit`.
   *
   * @example
   * for await (const { name, createdAt } of client.listDiskSnapshots('data')) console.log(name, createdAt);
   */
  listDiskSnapshots(disk: string, options: ListDisksOptions = {}): PagedList<DiskSnapshotInfo> {
    return listDiskSnapshots(this.#transport, disk, options);
  }

  /**
   * Deletes a snapshot of a disk. Disks that were forked from it are not affected.
   *
   * @example
   * await client.deleteDiskSnapshot('data', 'clean');
   */
  deleteDiskSnapshot(disk: string, snapshot: string, options: CallOptions = {}): Promise<void> {
    return deleteDiskSnapshot(this.#transport, { disk, snapshot }, options);
  }

  /**
   * Makes a new, independent disk from a snapshot of a disk. Takes as long for a large disk as for a small one.
   *
   * @example
   * await client.forkDisk('data', { snapshot: 'clean', name: 'data-copy' });
   */
  forkDisk(disk: string, options: ForkDiskOptions, call: CreateCallOptions = {}): Promise<DiskInfo> {
    return forkDisk(this.#transport, { disk, options }, call);
  }

  /**
   * Makes a new disk from a disk image with an ext4 file system. The call is not retried.
   *
   * @example
   * await client.importDisk('data', await openAsBlob('data.qcow2'), { format: 'qcow2' });
   */
  importDisk(name: string, content: FileContent, options: ImportDiskOptions = {}): Promise<DiskInfo> {
    return importDisk(this.#transport, { name, content }, options);
  }

  /**
   * Reads a disk, as it is in the object store, as a disk image.
   *
   * @example
   * const image = await client.exportDisk('data', { snapshot: 'clean' });
   */
  exportDisk(
    name: string,
    options: ExportDiskOptions = {},
  ): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
    return exportDisk(this.#transport, name, options);
  }
}
