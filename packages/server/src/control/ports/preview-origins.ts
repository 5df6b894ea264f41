/**
 * Names of the origins under which browsers see ports of sandboxes: `<port>-<sandbox id>.<domain>`. Each is an origin
 * of its own, so that a page of a guest can neither act as the user of the API nor read another sandbox's pages.
 */
import type { GuestPort } from './port-agent.ts';

const LABEL = /^(\d{1,5})-(run[0-9a-f]{20})$/u;

/** The domain of previews. */
export interface PreviewDomain {
  /** Every browser resolves `localhost` and names below it to this machine. */
  name: string;
  /** Scheme that users see; default: the one that control listens with. */
  scheme?: 'http' | 'https' | undefined;
  port?: number | undefined;
}

export class PreviewOrigins {
  readonly #domain: PreviewDomain;
  readonly #listening: () => URL;

  /** Calls `listening` only while requests are served. */
  constructor(domain: PreviewDomain, listening: () => URL) {
    this.#domain = domain;
    this.#listening = listening;
  }

  /** Returns the port that a `Host` header names, or undefined for the API's own names. */
  find(host: string | undefined): GuestPort | undefined {
    const name = (host ?? '').toLowerCase().replace(/:\d*$/u, '');
    const suffix = `.${this.#domain.name}`;
    if (!name.endsWith(suffix)) return undefined;
    const [, port, id] = LABEL.exec(name.slice(0, -suffix.length)) ?? [];
    if (id === undefined || Number(port) < 1 || Number(port) > 65_535) return undefined;
    return { id, port: Number(port) };
  }

  /** Builds the origin of a port: `scheme://host[:port]`. */
  build({ id, port }: GuestPort): string {
    const listening = this.#listening();
    const { name, scheme = listening.protocol.replace(':', ''), port: shown } = this.#domain;
    const origin = new URL(`${scheme}://${port}-${id}.${name}`);
    origin.port = String(shown ?? (this.#domain.scheme === undefined ? listening.port : ''));
    return origin.origin;
  }

  /** Returns whether a page of `origin` may act for its visitor: pages of the same sandbox may, on any port. */
  isOwn(origin: string, id: string): boolean {
    if (!URL.canParse(origin)) return false;
    const { host, protocol } = new URL(origin);
    return /^https?:$/u.test(protocol) && this.find(host)?.id === id;
  }
}
