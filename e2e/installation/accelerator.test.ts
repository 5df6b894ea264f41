/** How the service behaves on a host without KVM, for each COPPICE_ACCELERATOR. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Installation, type Start } from '../fixtures/service/installation.ts';
import { withoutKvm } from '../fixtures/service/launchers.ts';
import { MAIN } from '../fixtures/service/service-program.ts';
import { API_KEY } from '../fixtures/service/service.ts';

const START_TIMEOUT_MS = 120_000;
const REASON = 'there is no /dev/kvm on this host|/dev/kvm is there, but no kernel boots with it: .*';

describe('a service on a host without KVM', () => {
  let installation: Installation;
  const start = (accelerator: string): Start =>
    installation.start({ COPPICE_ACCELERATOR: accelerator, COPPICE_BOOTSTRAP_KEY: API_KEY }, [
      ...withoutKvm().command,
      process.execPath,
      MAIN,
    ]);
  const readHealth = async (service: Start): Promise<unknown> => {
    const [, address] = await service.waitForPrint(/listening on (http:\S+)/u, START_TIMEOUT_MS);
    const { accelerator } = (await (await fetch(`${address}/healthz`)).json()) as Record<string, unknown>;
    return accelerator;
  };
  before(async () => {
    installation = await Installation.create();
  });
  after(() => installation[Symbol.asyncDispose]());

  it('refuses to start with COPPICE_ACCELERATOR=kvm, and names the setting and the reason', async () => {
    const service = start('kvm');
    assert.equal(await service.ended, 1);
    const refusal = `^coppice: COPPICE_ACCELERATOR: is kvm, but KVM cannot be used: (?:${REASON})$`;
    assert.match(service.stderr, new RegExp(refusal, 'mu'));
  });

  it('emulates with COPPICE_ACCELERATOR=auto, says why, and records no verdict for the next start', async () => {
    const service = start('auto');
    assert.equal(await readHealth(service), 'tcg');
    assert.match(service.stdout, new RegExp(`^accelerator: tcg \\((?:${REASON})\\)$`, 'mu'));
    assert.equal(existsSync(join(installation.dataDir, 'runner', 'accelerator.json')), false);
    assert.equal(await service.stop(), 0);
  });

  it('emulates with COPPICE_ACCELERATOR=tcg, without trying KVM', async () => {
    const service = start('tcg');
    assert.equal(await readHealth(service), 'tcg');
    assert.match(service.stdout, /^accelerator: tcg \(COPPICE_ACCELERATOR=tcg\)$/mu);
    assert.doesNotMatch(service.stderr, /KVM was tried/u);
  });
});
