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
import { fetchNetworkProfiles, type NetworkProfile } from './egress.ts';
import { Images } from './images.ts';
import type { PagedList } from './transport/paged-list.ts';
import { Registries } from './registries.ts';
import { Sandboxes } from './sandbox/sandboxes.ts';
import { Snapshots } from './sandbox/snapshots.ts';
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
  /** Lists and deletes snapshots. */
  readonly snapshots: Snapshots;
  /** Lists images and prepares them ahead of their first use. */
  readonly images: Images;
  /** Stores credentials for private image registries. */
  readonly registries: Registries;
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    const transport = new Transport(resolveClientOptions(options));
    this.#transport = transport;
    this.baseUrl = transport.baseUrl;
    this.sandboxes = new Sandboxes(transport);
    this.snapshots = new Snapshots(transport);
    this.images = new Images(transport);
    this.registries = new Registries(transport);
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
}
