/** Certificates for tests, made with openssl: an authority and the certificates that it signs. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const TIMEOUT_MS = 20_000;

export interface CertificateOptions {
  /** In OpenSSL's syntax. */
  subjectAltName?: string;
  /** Days from now; both may be negative. */
  validFromDays?: number;
  validToDays?: number;
}

export interface MadeCertificate {
  certPath: string;
  keyPath: string;
}

export class TestAuthority implements Disposable {
  readonly directory = mkdtempSync(join(tmpdir(), 'coppice-tls-'));
  readonly certPath: string;
  readonly #keyPath: string;

  constructor() {
    this.certPath = this.path('ca.pem');
    this.#keyPath = this.path('ca.key');
    openssl(['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'], {
      '-keyout': this.#keyPath,
      '-out': this.certPath,
      '-days': '10',
      '-subj': '/CN=test authority',
    });
  }

  path(name: string): string {
    return join(this.directory, name);
  }

  /** Issues a server certificate, by default for 127.0.0.1 and localhost. */
  issue(name: string, options: CertificateOptions = {}): MadeCertificate {
    const [certPath, keyPath, requestPath] = ['pem', 'key', 'csr'].map((ending) =>
      this.path(`${name}.${ending}`),
    ) as [string, string, string];
    openssl(['req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'], {
      '-keyout': keyPath,
      '-out': requestPath,
      '-subj': `/CN=${name}`,
    });
    const { subjectAltName = 'IP:127.0.0.1,DNS:localhost', validFromDays = -1, validToDays = 5 } = options;
    const extensionPath = this.path(`${name}.ext`);
    writeFileSync(extensionPath, `subjectAltName=${subjectAltName}\n`);
    openssl(['ca', '-batch', '-notext', '-config', this.#writeConfig()], {
      '-in': requestPath,
      '-cert': this.certPath,
      '-keyfile': this.#keyPath,
      '-out': certPath,
      '-extfile': extensionPath,
      '-startdate': formatDate(validFromDays),
      '-enddate': formatDate(validToDays),
    });
    return { certPath, keyPath };
  }

  /** Writes the configuration that "openssl ca" requires, the only command that sets both dates. */
  #writeConfig(): string {
    writeFileSync(this.path('index.txt'), '');
    const lines = [
      '[ca]',
      'default_ca = default',
      '[default]',
      `database = ${this.path('index.txt')}`,
      `new_certs_dir = ${this.directory}`,
      'default_md = sha256',
      'rand_serial = yes',
      'policy = any',
      '[any]',
      'commonName = supplied',
    ];
    writeFileSync(this.path('ca.conf'), lines.join('\n'));
    return this.path('ca.conf');
  }

  [Symbol.dispose](): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}

const DAY_MS = 86_400_000;

/** `20261121063000Z` */
function formatDate(daysFromNow: number): string {
  const date = new Date(Date.now() + daysFromNow * DAY_MS);
  return `${date.toISOString().replaceAll(/[-:T]|\.\d+Z/gu, '')}Z`;
}

function openssl(args: readonly string[], options: Readonly<Record<string, string>>): void {
  execFileSync('openssl', [...args, ...Object.entries(options).flat()], {
    timeout: TIMEOUT_MS,
    stdio: 'pipe',
  });
}
