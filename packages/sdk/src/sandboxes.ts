import type { CallOptions } from './transport/client-options.ts';
import type { CreateCallOptions } from './transport/post-once.ts';
import { createSandbox, type CreateOptions } from './lifecycle.ts';
import { fetchPage, formatLabels, PagedList, requireLimit, toPageItems } from './transport/paged-list.ts';
import { findSandbox, Sandbox } from './sandbox.ts';
import { parseSandboxInfos, type SandboxStatus } from './sandbox-record.ts';
import { restoreSandbox, type RestoreOptions } from './snapshots.ts';
import type { Transport } from './transport/transport.ts';
import { buildQuery } from './transport/wire.ts';

/** Which sandboxes to list. */
export interface ListOptions extends CallOptions {
  /** Only those in this state, or in one of these. Default: those that have not ended. */
  status?: SandboxStatus | SandboxStatus[] | undefined;
  /** Only those that have all these labels. */
  labels?: Record<string, string> | undefined;
  /** Only those of this team: its id or its name. Default: all that the API key may see. */
  team?: string | undefined;
  /** At most this many in all. Default: every one. */
  limit?: number | undefined;
}

/** The sandboxes that your API key may see: your organization's, or your team's. Reached as `client.sandboxes`. */
export class Sandboxes {
  readonly #transport: Transport;

  /** Made by {@link Coppice}. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Creates a sandbox; resolves when it runs. The first use of an image on a machine takes longer, because the
   * image is pulled and prepared.
   *
   * @example
   * const sandbox = await client.sandboxes.create({ image: 'python:3.12-slim', vcpus: 2, memMiB: 2048 });
   */
  async create(options: CreateOptions = {}, call: CreateCallOptions = {}): Promise<Sandbox> {
    return new Sandbox(this.#transport, await createSandbox(this.#transport, options, call));
  }

  /**
   * Creates a sandbox from a snapshot, with the memory, the processes and the files of that moment; resolves when it
   * runs. What `options` leaves out is as in the sandbox that the snapshot was taken of.
   *
   * @example
   * const sandbox = await client.sandboxes.restore(snapshot.id, { timeout: 600 });
   */
  async restore(
    snapshotId: string,
    options: RestoreOptions = {},
    call: CreateCallOptions = {},
  ): Promise<Sandbox> {
    return new Sandbox(this.#transport, await restoreSandbox(this.#transport, snapshotId, options, call));
  }

  /**
   * Finds a sandbox; null when there is none with this id. A destroyed one is still found.
   *
   * @example
   * const sandbox = await client.sandboxes.get('run0123456789abcdef0123');
   */
  async get(id: string, options: CallOptions = {}): Promise<Sandbox | null> {
    return findSandbox(this.#transport, id, options);
  }

  /**
   * Lists sandboxes: await it for all, or iterate.
   *
   * @example
   * for await (const sandbox of client.sandboxes.list({ labels: { job: 'nightly' } })) await sandbox.destroy();
   */
  list(options: ListOptions = {}): PagedList<Sandbox> {
    const { status, labels, team, limit, signal } = options;
    requireLimit(limit);
    return new PagedList<Sandbox>({
      firstQuery: buildQuery({ status, label: formatLabels(labels), team, limit: toPageItems(limit) }),
      fetchPage: (query) =>
        fetchPage(this.#transport, { path: '/v1/runs', query, signal }, (value) =>
          parseSandboxInfos(value).map((info) => new Sandbox(this.#transport, info)),
        ),
      limit,
    });
  }
}
