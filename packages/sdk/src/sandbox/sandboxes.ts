import type { CallOptions } from '../transport/client-options.ts';
import type { CreateCallOptions } from '../transport/post-once.ts';
import { getOrCreateSandbox, type GetOrCreateOptions } from './get-or-create.ts';
import { createSandbox, type CreateOptions } from './lifecycle.ts';
import { fetchPage, formatLabels, PagedList, requireLimit, toPageItems } from '../transport/paged-list.ts';
import { findSandbox, Sandbox } from './sandbox.ts';
import { parseSandboxInfos, type SandboxStatus } from './sandbox-record.ts';
import { restoreSandbox, type RestoreOptions } from './snapshots.ts';
import type { Transport } from '../transport/transport.ts';
import { buildQuery } from '../transport/wire.ts';

/** Filters for a list of sandboxes. */
export interface ListOptions extends CallOptions {
  /** Lists only sandboxes in this state, or in one of these. Default: all that have not ended. */
  status?: SandboxStatus | SandboxStatus[] | undefined;
  /** Lists only sandboxes with this name: of each team, one at most that has not ended. */
  name?: string | undefined;
  /** Lists only sandboxes that have all these labels. */
  labels?: Record<string, string> | undefined;
  /** Lists only sandboxes of this team, given by id or name. Default: all that are visible to the API key. */
  team?: string | undefined;
  /** Maximum number of sandboxes over all pages, an integer above 0. Default: no limit. */
  limit?: number | undefined;
}

/**
 * The sandboxes visible to your API key: those of your organization, or those of your team. Available as
 * `client.sandboxes`.
 */
export class Sandboxes {
  readonly #transport: Transport;

  /** Called by {@link Coppice} only. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Creates a sandbox and resolves when it can run a command. The first use of an image on a machine takes longer,
   * because the service pulls and prepares the image. Rejects with {@link CoppiceError}, for example with code
   * `image_not_found` or `capacity`, and with `TypeError` for an unknown option.
   *
   * @example
   * const sandbox = await client.sandboxes.create({ image: 'python:3.12-slim', vcpus: 2, memMiB: 2048 });
   */
  async create(options: CreateOptions = {}, call: CreateCallOptions = {}): Promise<Sandbox> {
    return new Sandbox(this.#transport, await createSandbox(this.#transport, options, call));
  }

  /**
   * Finds the sandbox of your team with the name `options.name`, or creates it with the other options, and resolves when
   * it can run a command. Of several concurrent calls one creates the sandbox, and all resolve with the same one. A
   * hibernated sandbox is resumed. An existing sandbox is not changed: the options are those of a create only.
   *
   * Rejects with {@link CoppiceError} as `create()` and `resume()` do; with code `ambiguous_name` when the key sees
   * sandboxes of several teams with this name: pass the `team` of the key then.
   *
   * @example
   * const sandbox = await client.sandboxes.getOrCreate({ name: 'alice', image: 'python:3.12-slim', autoHibernate: true });
   */
  async getOrCreate(options: GetOrCreateOptions, call: CallOptions = {}): Promise<Sandbox> {
    return new Sandbox(this.#transport, await getOrCreateSandbox(this.#transport, options, call));
  }

  /**
   * Creates a sandbox from a snapshot and resolves when it can run a command. The sandbox has the memory, the processes
   * and the files of the snapshot. A setting that `options` leaves out has the value of the snapshot's sandbox, except
   * credentials. Rejects with {@link CoppiceError}, for example with code `not_found`, `snapshot_unusable` or
   * `capacity`, and with `TypeError` for an unknown option.
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
   * Finds a sandbox by its id. Resolves with null when there is none; a destroyed sandbox is still found. Rejects with
   * {@link CoppiceError} for any answer but 404, and with `TypeError` for an empty id.
   *
   * @example
   * const sandbox = await client.sandboxes.get('run0123456789abcdef0123');
   */
  async get(id: string, options: CallOptions = {}): Promise<Sandbox | null> {
    return findSandbox(this.#transport, id, options);
  }

  /**
   * Lists sandboxes, newest first. Await the list for all of them, or iterate over it. Throws `TypeError` for an
   * invalid `limit`; the list rejects with {@link CoppiceError}.
   *
   * @example
   * for await (const sandbox of client.sandboxes.list({ labels: { job: 'nightly' } })) await sandbox.destroy();
   */
  list(options: ListOptions = {}): PagedList<Sandbox> {
    const { status, name, labels, team, limit, signal } = options;
    requireLimit(limit);
    return new PagedList<Sandbox>({
      firstQuery: buildQuery({
        status,
        name,
        label: formatLabels(labels),
        team,
        limit: toPageItems(limit),
      }),
      fetchPage: (query) =>
        fetchPage(this.#transport, { path: '/v1/runs', query, signal }, (value) =>
          parseSandboxInfos(value).map((info) => new Sandbox(this.#transport, info)),
        ),
      limit,
    });
  }
}
