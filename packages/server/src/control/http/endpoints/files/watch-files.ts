import { AppError, FileEvent, WatchFilesQuery } from '@coppice/contract';
import { z } from 'zod';
import { readChanges } from '../../../placement/runner-files.ts';
import type { RunnerAnswer } from '../../../placement/runner-connection.ts';
import { answers, contents, eventOf } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { endOf } from '../../access/end-with-key.ts';
import { EventStream } from '../../answers/event-stream.ts';
import { buildErrorFrame } from '../../answers/stream-error.ts';
import { SandboxParams } from '../../requests/params.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import type { HttpParts } from '../../parts.ts';

const OK = contents('Changes from now on, as server-sent events.', {
  'text/event-stream': eventOf(FileEvent),
});

type Parts = Pick<HttpParts, 'sandboxes' | 'openRequests'>;

export function addWatchFiles(app: App, { sandboxes, openRequests }: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/files/watch',
    config: { access: 'read' },
    schema: {
      operationId: 'watchFiles',
      summary: 'Stream the changes of files in a directory',
      description:
        'Server-sent events, one FileEvent per `data:` line. The status arrives when the watch has begun. `ended` is the last ' +
        'event if the directory is gone; `error` if the sandbox has ended or hibernates. A change may be reported more than ' +
        'once. After `lost`, list the directory: the queue holds the last 16 384 changes that were not read.',
      params: SandboxParams,
      querystring: WatchFilesQuery,
      response: { ...answers(200, z.any(), [400, 401, 404, 409, 429, 502, 503]), 200: OK },
    },
    handler: async (request, reply) => {
      const { organizationId, reach, params, query, keyScope } = request;
      const driver = await sandboxes.getDriver(reach, params.id);
      const begun: { events?: EventStream } = {};
      const watch = async (): Promise<void> => {
        const answer = await driver.runner.files.openWatch(params.id, {
          ...query,
          path: resolvePath(driver.row, query.path),
        });
        begun.events = new EventStream(reply);
        const over = AbortSignal.any([begun.events.left, endOf(request, openRequests)]);
        await sendChanges(answer, begun.events, over);
      };
      try {
        await openRequests.stream(organizationId, () => driver.use(watch, { mayWake: keyScope === 'full' }));
      } catch (error) {
        // Only after the driver has explained the error: the sandbox may be gone.
        if (begun.events === undefined) throw error;
        await begun.events.send(FileEvent.parse(buildErrorFrame(error, request, openRequests)));
      }
      begun.events?.end();
      return reply;
    },
  });
}

/** Sends changes until the directory is gone or the client has left. Throws if the guest breaks off. */
async function sendChanges(answer: RunnerAnswer, events: EventStream, over: AbortSignal): Promise<void> {
  try {
    for await (const change of readChanges(answer, over)) {
      await events.send(change);
      if (change.type === 'ended') return;
    }
  } catch (error) {
    if (!over.aborted) throw error;
  }
  if (!events.left.aborted)
    throw new AppError('guest_unreachable', 'the agent in the sandbox broke the watch off; begin another');
}
