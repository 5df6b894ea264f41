/** Runners that join the installation of a harness: data directories, ports, and tokens from its database. */
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { ensureAuthority, type Authority } from '../../control/authority/authority.ts';
import { makeToken, type NewToken } from '../../control/authority/join-tokens.ts';
import type { Database } from '../../control/db/database.ts';
import { openMasterKeys } from '../../control/secrets/master-key.ts';
import { SecretBox } from '../../control/secrets/secret-box.ts';
import { parseToken, type HostAndPort, type JoinToken } from '../../lib/protocol/join-protocol.ts';
import { joinInstallation } from '../../runner/identity/join-installation.ts';
import type { JoinRecord } from '../../runner/identity/join-record.ts';
import { prepareHarness, waitFor, type ControlHarness } from '../../control/testing/control-harness.ts';
import { findFreePort } from '../../control/testing/free-port.ts';

const HOST = '127.0.0.1';
const TOKEN_MS = 600_000;
const log = pino({ level: 'silent' });

export interface JoinChange {
  token?: JoinToken;
  control?: HostAndPort;
  address?: HostAndPort;
}

export class JoiningRunner {
  readonly dataDir: string;
  readonly listen: HostAndPort;
  readonly #installation: JoinedInstallation;

  constructor(installation: JoinedInstallation, dataDir: string, port: number) {
    this.#installation = installation;
    this.dataDir = dataDir;
    this.listen = { host: HOST, port };
    mkdirSync(dataDir, { recursive: true });
  }

  async join({ token, control, address }: JoinChange = {}): Promise<JoinRecord> {
    return joinInstallation({
      dataDir: this.dataDir,
      control: control ?? this.#installation.internal,
      token: token ?? (await this.#installation.makeToken()),
      listen: this.listen,
      address,
      log,
    });
  }

  /** Removes one of its files, as a crash before it was written leaves it. */
  forget(name: 'joined.json' | 'identity.pem'): void {
    rmSync(join(this.dataDir, name));
  }
}

export class JoinedInstallation implements AsyncDisposable {
  readonly harness: ControlHarness;
  readonly db: Database & AsyncDisposable;
  readonly internal: HostAndPort;
  #runners = 0;

  private constructor(harness: ControlHarness, internal: HostAndPort) {
    this.harness = harness;
    this.internal = internal;
    this.db = harness.openDatabase();
  }

  /** Prepares a service with an internal listener, and starts it unless a test does. */
  static async open({ isStarted = true } = {}): Promise<JoinedInstallation> {
    const harness = await prepareHarness();
    await harness.runner.start();
    const installation = new JoinedInstallation(harness, { host: HOST, port: await findFreePort() });
    if (isStarted) await installation.start();
    return installation;
  }

  async start(): Promise<void> {
    const { harness, internal: internalListen } = this;
    await harness.startControl({ internalListen });
    await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  }

  async addRunner(): Promise<JoiningRunner> {
    const dataDir = join(this.harness.directory, `runner-${(this.#runners += 1)}`);
    return new JoiningRunner(this, dataDir, await findFreePort());
  }

  get box(): SecretBox {
    const { current, older } = openMasterKeys(join(this.harness.directory, 'data', 'master.key'));
    return new SecretBox(current, older);
  }

  authority(): Promise<Authority> {
    return ensureAuthority(this.db, this.box);
  }

  async makeToken(change: Partial<NewToken> = {}): Promise<JoinToken> {
    const made = await makeToken(this.db, await this.authority(), { validMs: TOKEN_MS, ...change });
    const token = parseToken(made.reveal());
    if (token === undefined) throw new Error('a malformed token was made');
    return token;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.db[Symbol.asyncDispose]();
    await this.harness[Symbol.asyncDispose]();
  }
}
