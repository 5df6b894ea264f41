/** A fake runner of another machine: behind TLS with a key of its own, and in the table of a control as one that has joined. */
import type { SecureServerOptions } from 'node:http2';
import { fingerprintOf } from '../../../lib/tls/control-role.ts';
import { exportKey, issueCertificate, makeKeyPair } from '../../../lib/tls/issue-certificate.ts';
import { FakeRunner } from '../fakes/fake-runner.ts';
import type { ControlHarness } from '../control-harness.ts';

const DAY_MS = 86_400_000;

export class JoinedRunner implements AsyncDisposable {
  readonly runner: FakeRunner;

  private constructor(runner: FakeRunner) {
    this.runner = runner;
  }

  /** Adds it to the runners of this control's database. */
  static async join(harness: ControlHarness): Promise<JoinedRunner> {
    const { runner, fingerprint } = await startNetworkRunner();
    await using db = harness.openDatabase();
    await db
      .insertInto('runners')
      .values({
        id: runner.id,
        region: 'us',
        owner: null,
        address: `127.0.0.1:${runner.port}`,
        fingerprint,
        joined_at: Date.now(),
      })
      .execute();
    return new JoinedRunner(runner);
  }

  /** As if its machine was off: nothing listens at its address. */
  leave(): Promise<void> {
    return this.runner.stop();
  }

  /** Ends a {@link leave}. */
  async comeBack(): Promise<void> {
    await this.runner.start();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.leave();
  }
}

/** Starts a fake runner that listens with a key of its own, and returns it with the fingerprint that controls pin. */
export async function startNetworkRunner(
  options: SecureServerOptions = {},
): Promise<{ runner: FakeRunner; fingerprint: string }> {
  const id = `runner-${crypto.randomUUID().replaceAll('-', '')}`;
  const { cert, key } = makeCertificate(id);
  const runner = new FakeRunner('', { ...options, cert, key });
  runner.id = id;
  await runner.start();
  return { runner, fingerprint: fingerprintOf(cert) };
}

function makeCertificate(id: string): { cert: string; key: string } {
  const { publicKey, privateKey } = makeKeyPair();
  const now = Date.now();
  const validity = { validFrom: new Date(now - DAY_MS), validTo: new Date(now + DAY_MS) };
  const subject = { commonName: id, publicKey, ...validity };
  return {
    cert: issueCertificate(subject, { commonName: id, key: privateKey }),
    key: exportKey(privateKey),
  };
}
