import { resolveClientOptions, type ClientOptions } from './client-options.ts';
import { Images } from './images.ts';
import { Registries } from './registries.ts';
import { Sandboxes } from './sandboxes.ts';
import { Snapshots } from './snapshots.ts';
import { Transport } from './transport.ts';

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

  constructor(options: ClientOptions = {}) {
    const transport = new Transport(resolveClientOptions(options));
    this.baseUrl = transport.baseUrl;
    this.sandboxes = new Sandboxes(transport);
    this.snapshots = new Snapshots(transport);
    this.images = new Images(transport);
    this.registries = new Registries(transport);
  }
}
