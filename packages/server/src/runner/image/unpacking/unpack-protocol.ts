/**
 * The messages between the runner and an unpacking process: HTTP/1.1 over a Unix socket. One process serves one
 * preparation of one image:
 *
 *     PUT /layers/<n>?max_bytes=<n>   the stored layer as body ─► {digest} of its archive, or {error}
 *     POST /image                     {layers, …limits} ─► lines of progress, then {made} or {error}
 *
 * The process has parsed hostile data: the runner checks every answer, and takes the finished file only when the process
 * is gone.
 */
import { z } from 'zod';

/** In the working directory of the process. */
export const SOCKET_NAME = 'socket';
export const IMAGE_NAME = 'image';
const MAX_MESSAGE = 2000;

/** `layer`: the image's fault. `space`: the disk is full. `time`: it took too long. `other`: a fault of the service. */
export const UnpackFault = z.object({
  kind: z.enum(['layer', 'space', 'time', 'other']),
  message: z.string().max(MAX_MESSAGE),
});
export type UnpackFault = z.infer<typeof UnpackFault>;

export const LayerAnswer = z.union([
  z.object({ digest: z.string().regex(/^sha256:[0-9a-f]{64}$/u) }),
  z.object({ error: UnpackFault }),
]);

export const ImageRequest = z.object({
  layers: z.int().nonnegative(),
  maxEntries: z.int().positive(),
  maxContentBytes: z.int().positive(),
  maxMetadataBytes: z.int().positive(),
  timeoutMs: z.int().positive(),
});
export type ImageRequest = z.infer<typeof ImageRequest>;

export const ImageLine = z.union([
  z.object({ content_bytes: z.int().nonnegative() }),
  z.object({ bytes: z.int().nonnegative() }),
  z.object({ made: z.object({ acls: z.int().nonnegative() }) }),
  z.object({ error: UnpackFault }),
]);
export type ImageLine = z.infer<typeof ImageLine>;
