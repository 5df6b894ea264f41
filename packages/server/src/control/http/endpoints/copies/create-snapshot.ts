import { CreateSnapshotRequest, SnapshotRecord } from '@coppice/contract';
import { z } from 'zod';
import { newSnapshotId } from '../../../sandbox/record/ids.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { createOnce, IdempotencyHeaders } from '../../access/idempotent.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

const Body = z.preprocess((body) => body ?? {}, CreateSnapshotRequest);

export function addCreateSnapshot(
  app: App,
  parts: Pick<HttpParts, 'sandboxes' | 'snapshots' | 'idempotency' | 'openRequests'>,
): void {
  const { sandboxes, snapshots } = parts;
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/snapshot',
    config: { access: 'full' },
    schema: {
      operationId: 'createSnapshot',
      summary:
        'Save a snapshot of a sandbox, which keeps running; answers when the snapshot is safely on disk',
      params: SandboxParams,
      headers: IdempotencyHeaders,
      body: Body,
      response: answers(201, SnapshotRecord, [400, 401, 404, 409, 413, 422, 429, 502, 503]),
    },
    handler: async (request, reply) => {
      const { reach, body } = request;
      const answer = await createOnce(parts, request, reply, {
        body,
        newSubjectId: newSnapshotId,
        create: async (id) => {
          const driver = await sandboxes.getDriver(reach, request.params.id);
          return { status: 201, body: await snapshots.create({ id, driver, request: body }) };
        },
        find: (id) => snapshots.findSubject(reach, id),
      });
      return reply.code(201).send(answer.body);
    },
  });
}
