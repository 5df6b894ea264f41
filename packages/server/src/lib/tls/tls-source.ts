import type { Logger } from 'pino';
import { readTlsPair, serverCertificate, type TlsPair, type TlsPaths } from './tls-pair.ts';

/** The pair that is served now. The files are read at the start and on {@link reload}, not when they change. */
export class TlsSource {
  readonly #paths: TlsPaths;
  readonly #log: Logger;
  #pair: TlsPair;

  /** Throws TlsError if the files cannot be served. */
  constructor(paths: TlsPaths, log: Logger) {
    this.#paths = paths;
    this.#log = log;
    this.#pair = readTlsPair(paths);
    this.#report('the certificate is read');
  }

  get pair(): TlsPair {
    return this.#pair;
  }

  get certPath(): string {
    return this.#paths.certPath;
  }

  /**
   * Reads the files again. Returns false if they cannot be served: the old pair stays, and the log gives the reason.
   */
  reload(): boolean {
    try {
      this.#pair = readTlsPair(this.#paths);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.#log.error({ reason }, 'the new certificate cannot be used; the previous one stays');
      return false;
    }
    this.#report('the certificate is read again');
    return true;
  }

  #report(text: string): void {
    const { subject, validToDate, fingerprint256 } = serverCertificate(this.#pair);
    this.#log.info({ subject, valid_to: validToDate.toISOString(), fingerprint256 }, text);
  }
}
