import type { StandardSchemaWithJSON } from '@modelcontextprotocol/server';
import type { z } from 'zod';

export type CachedSchema<Schema extends z.ZodObject> = StandardSchemaWithJSON<
  z.input<Schema>,
  z.output<Schema>
>;

/**
 * A schema whose JSON Schema is built once. The server package builds it for each server, and over HTTP each request has a
 * server of its own: building those of all tools takes longer than most calls.
 */
export function cacheJsonSchema<Schema extends z.ZodObject>(schema: Schema): CachedSchema<Schema> {
  const standard = schema['~standard'];
  const built = new Map<string, Record<string, unknown>>();
  const build = (io: 'input' | 'output', options: { target: string }): Record<string, unknown> => {
    const name = `${io} ${options.target}`;
    const json = built.get(name) ?? standard.jsonSchema[io](options);
    built.set(name, json);
    return json;
  };
  return {
    '~standard': {
      version: 1,
      vendor: standard.vendor,
      validate: (value) => standard.validate(value),
      jsonSchema: {
        input: (options) => build('input', options),
        output: (options) => build('output', options),
      },
    },
  };
}
