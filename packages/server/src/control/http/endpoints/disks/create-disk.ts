import { CreateDiskRequest, DiskRecord } from '@coppice/contract';
import { newDiskId } from '../../../disks/disk-ids.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { createOnce, IdempotencyHeaders } from '../../access/idempotent.ts';
import type { HttpParts } from '../../parts.ts';

export function addCreateDisk(
  app: App,
  parts: Pick<HttpParts, 'disks' | 'idempotency' | 'openRequests'>,
): void {
  const { disks } = parts;
  app.route({
    method: 'POST',
    url: '/v1/disks',
    config: { access: 'full' },
    schema: {
      operationId: 'createDisk',
      summary: 'Create a persistent disk with an empty file system',
      headers: IdempotencyHeaders,
      body: CreateDiskRequest,
      response: answers(201, DiskRecord, [400, 401, 409, 413, 422, 429, 503]),
    },
    handler: async (request, reply) => {
      const { organizationId, teamId, body } = request;
      const answer = await createOnce(parts, request, reply, {
        body,
        newSubjectId: newDiskId,
        create: async (id) => {
          const owner = { organizationId, teamId };
          return { status: 201, body: await disks.create({ id, owner }, body) };
        },
        find: (id) => disks.findSubject(id),
      });
      return reply.code(201).header('location', `/v1/disks/${answer.body.name}`).send(answer.body);
    },
  });
}
