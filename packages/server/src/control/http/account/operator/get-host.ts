import { HostRecord } from '@coppice/contract';
import { listRunners } from '../../../authority/joined-runners.ts';
import { listLiveControls } from '../../../ownership/live-controls.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT } from '../session/account-schema.ts';
import { buildControl, buildRunner } from './host-record.ts';

type Parts = Pick<HttpParts, 'db' | 'runners' | 'control' | 'checkHealth' | 'version' | 'region'>;

export function addGetHost(app: App, { db, runners, control, checkHealth, version, region }: Parts): void {
  app.route({
    method: 'GET',
    url: '/account/operator/host',
    schema: {
      ...ACCOUNT,
      operationId: 'getHost',
      summary:
        'Get the health of the service, its controls, and capacity and use of its runners; for the operator',
      response: answers(200, HostRecord, [401, 403, 503]),
    },
    handler: async ({ log }) => {
      const [fault, controls, listed] = await Promise.all([
        checkHealth().then(
          () => null,
          (error: unknown) => (error instanceof Error ? error.message : String(error)),
        ),
        listLiveControls(db),
        listRunners(db),
      ]);
      const shown = listed.filter(({ revokedAt }) => revokedAt === null);
      const built = shown.map(async (runner) => {
        const own = runners.find(runner.id);
        const measured = await own?.client.measures.runner().catch((error: unknown) => {
          log.warn({ err: error, runner_id: runner.id }, 'the runner could not be measured');
          return undefined;
        });
        return buildRunner(
          runner,
          own && { isConnected: own.isConnected, ageMs: own.presence.ageMs, measured },
        );
      });
      return {
        version,
        region,
        serves: fault === null,
        fault,
        controls: controls.map((one) => buildControl(one, control)),
        runners: await Promise.all(built),
      };
    },
  });
}
