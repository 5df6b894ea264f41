import { DiskRecord, ForkDiskRequest } from '@coppice/contract';
import { newDiskId } from '../../../disks/disk-ids.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { createOnce, IdempotencyHeaders } from '../../access/idempotent.ts';
import { DiskParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addForkDisk(
  app: App,
  parts: Pick<HttpParts, 'disks' | 'idempotency' | 'openRequests'>,
): void {
  const { disks } = parts;
  app.route({
    method: 'POST',
    url: '/v1/disks/:disk/fork',
    config: { access: 'full' },
    schema: {
      operationId: 'forkDisk',
      summary: 'Make a new, independent disk from a snapshot of a disk',
      description: 'Takes as long for a large disk as for a small one: no data is copied.',
      params: DiskParams,
      headers: IdempotencyHeaders,
      body: ForkDiskRequest,
      response: answers(201, DiskRecord, [400, 401, 404, 409, 413, 422, 429, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, teamId, reach, body } = request;
      const answer = await createOnce(parts, request, reply, {
        body,
        newSubjectId: newDiskId,
        create: async (id) => {
          const fork = { reach, source: request.params.disk, request: body };
          const owner = { organizationId, teamId };
          return { status: 201, body: await disks.fork({ id, owner }, fork) };
        },
        find: (id) => disks.findSubject(id),
      });
      return reply.code(201).header('location', `/v1/disks/${answer.body.name}`).send(answer.body);
    },
  });
}
