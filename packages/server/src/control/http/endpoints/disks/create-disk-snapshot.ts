import { CreateDiskSnapshotRequest, DiskSnapshotRecord } from '@coppice/contract';
import { newDiskSnapshotId } from '../../../disks/disk-ids.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { createOnce, IdempotencyHeaders } from '../../access/idempotent.ts';
import { DiskParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addCreateDiskSnapshot(
  app: App,
  parts: Pick<HttpParts, 'diskSnapshots' | 'idempotency' | 'openRequests'>,
): void {
  const { diskSnapshots } = parts;
  app.route({
    method: 'POST',
    url: '/v1/disks/:disk/snapshots',
    config: { access: 'full' },
    schema: {
      operationId: 'createDiskSnapshot',
      summary: 'Take a snapshot of a persistent disk, also while a sandbox uses it',
      params: DiskParams,
      headers: IdempotencyHeaders,
      body: CreateDiskSnapshotRequest,
      response: answers(201, DiskSnapshotRecord, [400, 401, 404, 409, 413, 422, 429, 503]),
    },
    handler: async (request, reply) => {
      const { reach, body } = request;
      const { disk } = request.params;
      const answer = await createOnce(parts, request, reply, {
        body,
        newSubjectId: newDiskSnapshotId,
        create: async (id) => {
          return { status: 201, body: await diskSnapshots.create(reach, { id, disk, request: body }) };
        },
        find: (id) => diskSnapshots.findSubject(id, disk),
      });
      return reply.code(201).send(answer.body);
    },
  });
}
