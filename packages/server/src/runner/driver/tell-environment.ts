/**
 * Updates the environment of a guest, so that new programs find the placeholders and addresses of the services granted
 * now. Running programs keep theirs. This is only a convenience: a guest that does not answer in time, or whose agent
 * is older than this call, is left alone.
 */
import type { Logger } from 'pino';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import type { VmEgress } from '../../lib/protocol/egress-protocol.ts';
import type { VmDriver } from './vm-driver.ts';
import { buildPlaceholders } from './vm-egress.ts';

const TIMEOUT_MS = 2000;

export interface EnvironmentChange {
  former: VmEgress;
  /** The image's own variables, which take precedence. */
  image: Readonly<Record<string, string>>;
  log: Logger;
}

export async function tellEnvironment(
  driver: VmDriver,
  { former, image, log }: EnvironmentChange,
): Promise<void> {
  const build = ({ grants }: VmEgress): Record<string, string> =>
    buildPlaceholders(
      driver.info.id,
      grants.map(({ service }) => service),
    );
  const placeholders = build(driver.egress);
  if (JSON.stringify(placeholders) === JSON.stringify(build(former))) return;
  const telling = async (): Promise<void> => {
    const session = await driver.session(TIMEOUT_MS);
    await session.call('POST', '/environment', { env: { ...placeholders, ...image } });
  };
  await withDeadline('environment of the guest', TIMEOUT_MS, telling()).catch((error: unknown) => {
    log.info({ err: error, vm: driver.info.id }, 'could not update the environment of a guest');
  });
}
