/**
 * A control in its own process, which a test can kill. It loads all modules, which is most of a start, and then waits
 * for a {@link ServeRequest} of its parent. Once it serves, it writes its address in a line, and then its log. With a
 * moment of a host, its clock stands still and moves only by a {@link ClockRequest}.
 */
import pino from 'pino';
import { armFaults } from '../../../lib/fault-directory.ts';
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { ControlConfig } from '../../control-config.ts';
import { startControl } from '../../control.ts';
import { loadSites } from '../../static-site/sites.ts';
import { ManualClock } from '../manual-clock.ts';

/** The first message from the parent. */
export interface ServeRequest {
  config: ControlConfig;
  /** Level of its log. */
  level: string;
  moment?: HostMoment;
}

/** Moves the clock. The answer is the `nextInMs` of the clock afterwards, null for never. */
export type ClockRequest = { advanceMs: number } | { wallMs: number };

const lines: string[] = [];
let write = (line: string): void => void lines.push(line);
armFaults(process.env['COPPICE_FAULT_DIR']);
process.once('message', (request: ServeRequest) => void serve(request));

async function serve({ config, level, moment }: ServeRequest): Promise<void> {
  const log = pino({ level }, { write: (line) => write(line) });
  const clock = moment === undefined ? undefined : new ManualClock(moment);
  const { address } = await startControl(config, log, {
    ...(clock === undefined ? {} : { clock }),
    sites: loadSites(config, log),
  });
  if (clock !== undefined) process.on('message', (request: ClockRequest) => tell(clock, request));
  write = (line) => void process.stdout.write(line);
  write(`${address}\n`);
  for (const line of lines) write(line);
}

function tell(clock: ManualClock, request: ClockRequest): void {
  if ('wallMs' in request) clock.setWall(request.wallMs);
  else clock.advance(request.advanceMs);
  process.send?.(clock.nextInMs);
}
