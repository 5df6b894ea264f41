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
import { Sandboxes } from './sandboxes.ts';
import { Snapshots } from './snapshots.ts';
import { Transport } from './transport/transport.ts';

/**
 * The client. Throws `TypeError` at once when there is no API key, neither as option nor in `SANDBOX_API_KEY`.
 *
 * @example
 * const client = new Coppice({ baseUrl: 'http://127.0.0.1:8080', apiKey: 'cop_live_us_…' });
 * await using sandbox = await client.sandboxes.create();
 * console.log((await sandbox.exec('uname -a')).stdout);
 */
export class Coppice {
  /** Address of the service, without a slash at its end. */
  readonly baseUrl: string;
  readonly sandboxes: Sandboxes;
  readonly snapshots: Snapshots;
  readonly images: Images;
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
   * What your organization has used and what it costs, up to now.
   *
   * @example
   * const { totalCostCents, creditLeftCents } = await client.usage();
   */
  usage(options: CallOptions = {}): Promise<Usage> {
    return fetchUsage(this.#transport, options);
  }

  /**
   * Lists sandboxes that have ended, newest end first: await it for all, or iterate.
   *
   * @example
   * for await (const { id, costCents } of client.history({ labels: { job: 'nightly' } })) console.log(id, costCents);
   */
  history(options: HistoryOptions = {}): PagedList<HistoryEntry> {
    return listHistory(this.#transport, options);
  }

  /**
   * The network profiles of the service, as they are enforced there.
   *
   * @example
   * for (const { name, description } of await client.networkProfiles()) console.log(name, description);
   */
  networkProfiles(options: CallOptions = {}): Promise<NetworkProfile[]> {
    return fetchNetworkProfiles(this.#transport, options);
  }

  /**
   * What your organization owes for a month in UTC, with a line for each sandbox that ran in it.
   *
   * @example
   * const { costCents, complete } = await client.statement('2026-11');
   */
  statement(month: string, options: CallOptions = {}): Promise<Statement> {
    return fetchStatement(this.#transport, month, options);
  }
}
