/** A fake runner of another machine: behind TLS with a key of its own, and in the table of a control as one that has joined. */
import { once } from 'node:events';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { createServer, type Server } from 'node:tls';
import { fingerprintOf } from '../../../lib/tls/control-role.ts';
import { exportKey, issueCertificate, makeKeyPair } from '../../../lib/tls/issue-certificate.ts';
import { newId } from '../../../lib/new-id.ts';
import { FakeRunner } from '../fakes/fake-runner.ts';
import type { ControlHarness } from '../control-harness.ts';

const DAY_MS = 86_400_000;

export class JoinedRunner implements AsyncDisposable {
  readonly runner: FakeRunner;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #fingerprint: string;
  #port = 0;

  private constructor(runner: FakeRunner) {
    this.runner = runner;
    const { publicKey, privateKey } = makeKeyPair();
    const now = Date.now();
    const cert = issueCertificate(
      {
        commonName: runner.id,
        publicKey,
        validFrom: new Date(now - DAY_MS),
        validTo: new Date(now + DAY_MS),
      },
      { commonName: runner.id, key: privateKey },
    );
    this.#fingerprint = fingerprintOf(cert);
    this.#server = createServer({ cert, key: exportKey(privateKey), ALPNProtocols: ['h2'] }, (outer) => {
      const inner = connect(runner.socketPath);
      for (const socket of [outer, inner]) {
        this.#sockets.add(socket);
        socket.on('error', () => undefined);
      }
      outer.on('close', () => inner.destroy());
      inner.on('close', () => outer.destroy());
      outer.pipe(inner).pipe(outer);
    });
  }

  /** Adds it to the runners of this control's database. */
  static async join(harness: ControlHarness): Promise<JoinedRunner> {
    const runner = new FakeRunner(`${harness.directory}/${newId('joined')}.sock`);
    runner.id = `runner-${crypto.randomUUID().replaceAll('-', '')}`;
    await runner.start();
    const joined = new JoinedRunner(runner);
    joined.#server.listen(0, '127.0.0.1');
    await once(joined.#server, 'listening');
    const { port } = joined.#server.address() as AddressInfo;
    joined.#port = port;
    await using db = harness.openDatabase();
    await db
      .insertInto('runners')
      .values({
        id: runner.id,
        region: 'us',
        owner: null,
        address: `127.0.0.1:${port}`,
        fingerprint: joined.#fingerprint,
        joined_at: Date.now(),
      })
      .execute();
    return joined;
  }

  /** As if its machine was off: nothing listens at its address. */
  async leave(): Promise<void> {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await this.runner.stop();
  }

  /** Ends a {@link leave}. */
  async comeBack(): Promise<void> {
    await this.runner.start();
    this.#server.listen(this.#port, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.leave();
  }
}
