import { posix } from 'node:path';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import type { ImageConfig } from '../store/image-store.types.ts';

/** The platform of this machine's guests. */
export const PLATFORM = { os: 'linux', architecture: 'amd64' } as const;

const MAX_ENV_VARIABLES = 1024;
/** Linux limits the arguments and environment of a new process together. */
const MAX_ENV_BYTES = 128 * 1024;
const MAX_PATH_LENGTH = 4095;

const ConfigFile = z.object({
  architecture: z.string().max(64).default(''),
  os: z.string().max(64).default(''),
  config: z
    .object({
      Env: z.array(z.string()).max(MAX_ENV_VARIABLES).nullish(),
      User: z.string().max(256).nullish(),
      WorkingDir: z.string().max(MAX_PATH_LENGTH).nullish(),
    })
    .nullish(),
  rootfs: z.object({
    type: z.literal('layers'),
    diff_ids: z.array(z.string().regex(/^sha256:[0-9a-f]{64}$/u)),
  }),
});

export interface ParsedConfig {
  config: ImageConfig;
  /** Digests of the uncompressed layers, the lowest first. */
  diffIds: string[];
}

/** Parses an image's config blob. Throws `invalid_image` if it is malformed or for another platform. */
export function parseImageConfig(image: string, data: Buffer): ParsedConfig {
  const file = ConfigFile.safeParse(parseJson(image, data));
  if (!file.success) {
    const issue = file.error.issues[0];
    throw new AppError(
      'invalid_image',
      `image ${image}: its config is malformed at ${issue?.path.join('.')}: ${issue?.message}`,
    );
  }
  const { architecture, os, config, rootfs } = file.data;
  if (os !== PLATFORM.os || architecture !== PLATFORM.architecture) {
    throw wrongPlatform(image, [`${os}/${architecture}`]);
  }
  return {
    config: {
      env: parseEnv(image, config?.Env ?? []),
      user: checkText(image, 'User', config?.User ?? ''),
      workdir: absolute(checkText(image, 'WorkingDir', config?.WorkingDir ?? '')),
    },
    diffIds: rootfs.diff_ids,
  };
}

export function wrongPlatform(image: string, offered: readonly string[]): AppError {
  const wanted = `${PLATFORM.os}/${PLATFORM.architecture}`;
  return new AppError(
    'invalid_image',
    `image ${image} is for ${offered.join(', ')}, sandboxes here are ${wanted}`,
  );
}

function parseJson(image: string, data: Buffer): unknown {
  try {
    return JSON.parse(data.toString('utf8'));
  } catch (error) {
    throw new AppError('invalid_image', `image ${image}: its config is not JSON`, { cause: error });
  }
}

/** Parses the environment. An entry without "=" is Docker's way to unset a variable; it sets nothing here. */
function parseEnv(image: string, entries: readonly string[]): Record<string, string> {
  const variables = new Map<string, string>();
  let bytes = 0;
  for (const entry of entries) {
    bytes += Buffer.byteLength(checkText(image, 'Env', entry)) + 1;
    if (bytes > MAX_ENV_BYTES) {
      throw new AppError(
        'invalid_image',
        `image ${image}: its environment has more than ${MAX_ENV_BYTES} bytes`,
      );
    }
    const equals = entry.indexOf('=');
    if (equals > 0) variables.set(entry.slice(0, equals), entry.slice(equals + 1));
  }
  return Object.fromEntries(variables);
}

/**
 * Makes the working directory absolute. Most builders write it so; the engines resolve a relative one from the root.
 */
function absolute(workdir: string): string {
  return workdir === '' ? '' : posix.resolve('/', workdir);
}

function checkText(image: string, field: string, text: string): string {
  if (text.includes('\0')) throw new AppError('invalid_image', `image ${image}: its ${field} has a NUL byte`);
  return text;
}
