/** Shows a schema as a list of fields. Objects in it are folded, and a schema within itself is only named. */
import { html, type Html } from '../html/html.ts';
import {
  alternatives,
  nameOf,
  resolveSchema,
  type OpenApiDocument,
  type Schema,
} from './openapi-document.ts';

/** Patterns that exclude characters no caller would send, and those of times: the type says enough. */
const OBVIOUS_PATTERN = /\\x00|\\d\{4\}/u;

export interface SchemaViewOptions {
  document: OpenApiDocument;
  renderText: (text: string) => Html;
  /** Whether fields are marked as required: those of an answer are there anyway. */
  marksRequired: boolean;
}

/** Renders the fields of an object, or the alternatives of a union; nothing for a plain value. */
export function renderSchema(
  schema: Schema,
  options: SchemaViewOptions,
  within: readonly string[] = [],
): Html {
  const name = nameOf(schema);
  if (name !== undefined && within.includes(name)) return html`<p class="note">See ${name} above.</p>`;
  const inside = name === undefined ? within : [...within, name];
  const target = resolveSchema(schema, options.document);
  if (target.properties !== undefined) return renderFields(target, options, inside);
  const parts = alternatives(target);
  if (parts.length > 1 && parts.some((part) => hasFields(part, options.document)))
    return html`${parts.map(
      (part, index) =>
        html`<div class="alternative">
          <p class="note">
            ${index === 0 ? 'Either' : 'or'} <code>${typeName(part, options.document)}</code>
          </p>
          ${renderSchema(part, options, inside)}
        </div>`,
    )}`;
  if (parts.length === 1 && parts[0] !== undefined) return renderSchema(parts[0], options, inside);
  if (target.items !== undefined) return renderSchema(target.items, options, inside);
  if (typeof target.additionalProperties === 'object')
    return renderSchema(target.additionalProperties, options, inside);
  return target.contentSchema === undefined ? html`` : renderSchema(target.contentSchema, options, inside);
}

/** Whether {@link renderSchema} has something to show. */
export function hasFields(schema: Schema, document: OpenApiDocument, depth = 0): boolean {
  if (depth > 8) return false;
  const target = resolveSchema(schema, document);
  if (target.properties !== undefined) return true;
  const { items, additionalProperties, contentSchema } = target;
  const parts = [...alternatives(target), items, additionalProperties, contentSchema];
  return parts.some((part) => typeof part === 'object' && hasFields(part, document, depth + 1));
}

/** One field or parameter: name, type, limits, description. */
export function renderField(
  { name, schema, isRequired }: { name: string; schema: Schema; isRequired: boolean },
  options: SchemaViewOptions,
  within: readonly string[] = [],
): Html {
  const target = resolveSchema(schema, options.document);
  const required =
    isRequired && options.marksRequired ? html`<span class="required">required</span>` : undefined;
  const description = schema.description ?? target.description;
  const values = enumOf(target);
  return html`<li class="field">
    <p class="field-head">
      <code class="field-name">${name}</code>
      <span class="type">${typeName(schema, options.document)}</span>${required}
    </p>
    ${description === undefined ? undefined : html`<p>${options.renderText(description)}</p>`}
    ${values === undefined ? undefined : html`<p class="values">${values.map((value) => html`<code>${value}</code> `)}</p>`}
    ${renderLimits(target)}${renderNested(schema, options, within)}
  </li>`;
}

function renderFields(schema: Schema, options: SchemaViewOptions, within: readonly string[]): Html {
  const { properties = {}, required = [] } = schema;
  const fields = Object.entries(properties).map(([name, each]) =>
    renderField({ name, schema: each, isRequired: required.includes(name) }, options, within),
  );
  return fields.length === 0
    ? html`<p class="note">No fields.</p>`
    : html`<ul class="fields">
        ${fields}
      </ul>`;
}

function renderNested(
  schema: Schema,
  options: SchemaViewOptions,
  within: readonly string[],
): Html | undefined {
  if (!hasFields(schema, options.document)) return undefined;
  return html`<details>
    <summary>Fields</summary>
    ${renderSchema(schema, options, within)}
  </details>`;
}

/** Returns the name of a type for people, such as `array of string or null`. */
export function typeName(schema: Schema, document: OpenApiDocument): string {
  const name = nameOf(schema);
  const target = resolveSchema(schema, document);
  const parts = target.anyOf ?? target.oneOf;
  if (parts !== undefined && name === undefined)
    return [...new Set(parts.map((part) => typeName(part, document)))].join(' or ');
  if (name !== undefined && (target.properties !== undefined || parts !== undefined)) return name;
  if (target.const !== undefined) return JSON.stringify(target.const);
  if (target.items !== undefined) return `array of ${typeName(target.items, document)}`;
  if (target.format === 'date-time') return 'time (ISO 8601)';
  if (target.format === 'binary') return 'bytes';
  if (typeof target.additionalProperties === 'object' && target.properties === undefined)
    return `map of string to ${typeName(target.additionalProperties, document)}`;
  return [target.type ?? 'any'].flat().join(' or ');
}

function enumOf(schema: Schema): string[] | undefined {
  const found = schema.enum ?? alternatives(schema).find((part) => part.enum !== undefined)?.enum;
  return found?.map(String);
}

function renderLimits(schema: Schema): Html | undefined {
  const part = alternatives(schema).find(({ $ref }) => $ref === undefined) ?? schema;
  const limits = [
    range('', part.minimum, part.maximum),
    range(' characters', part.minLength, part.maxLength),
    range(' items', part.minItems, part.maxItems),
    schema.default === undefined ? undefined : html`default <code>${JSON.stringify(schema.default)}</code>`,
    part.pattern === undefined || OBVIOUS_PATTERN.test(part.pattern)
      ? undefined
      : html`matches <code>${part.pattern}</code>`,
  ].filter((each) => each !== undefined);
  if (limits.length === 0) return undefined;
  return html`<p class="limits">${limits.map((each, index) => html`${index === 0 ? '' : ' · '}${each}`)}</p>`;
}

function range(unit: string, least: number | undefined, most: number | undefined): Html | undefined {
  const high = most === undefined || most >= Number.MAX_SAFE_INTEGER ? undefined : most.toLocaleString('en');
  const low = least === undefined || (least === 0 && unit !== '') ? undefined : least.toLocaleString('en');
  if (low === undefined && high === undefined) return undefined;
  if (low === undefined) return html`up to ${high}${unit}`;
  return html`${high === undefined ? `from ${low}` : `${low} to ${high}`}${unit}`;
}
