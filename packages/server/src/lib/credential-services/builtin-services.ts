/** The five services of the specification. Variable names are those that the vendors' own clients read. */
import { z } from 'zod';
import { CredentialService } from './credential-service.ts';

const ROWS: z.input<typeof CredentialService>[] = [
  {
    name: 'openai',
    host: 'api.openai.com',
    // The client appends `/chat/completions` to its base URL, which by default ends in /v1.
    base_path: '/v1',
    authentication: { kind: 'header', header: 'authorization', prefix: 'Bearer ' },
    web_socket: true,
    dropped_protocol_prefixes: ['openai-insecure-api-key.', 'openai-ephemeral-token.'],
    placeholder_prefix: 'sk-',
  },
  {
    name: 'anthropic',
    host: 'api.anthropic.com',
    authentication: { kind: 'header', header: 'x-api-key' },
    default_headers: { 'anthropic-version': '2023-06-01' },
    placeholder_prefix: 'sk-ant-',
  },
  {
    name: 'google',
    host: 'generativelanguage.googleapis.com',
    authentication: { kind: 'header', header: 'x-goog-api-key' },
    dropped_headers: ['x-goog-iam-authorization-token', 'x-goog-iam-authority-selector'],
    // Examples and the client's WebSockets send the secret as `key`.
    dropped_parameters: ['key'],
    web_socket: true,
    key_variables: ['GEMINI_API_KEY'],
    base_url_variables: ['GOOGLE_GEMINI_BASE_URL', 'GEMINI_BASE_URL'],
  },
  {
    name: 'github',
    host: 'api.github.com',
    authentication: { kind: 'header', header: 'authorization', prefix: 'Bearer ' },
    // The service refuses requests without a user agent.
    default_headers: { 'user-agent': 'coppice' },
    key_variables: ['GITHUB_TOKEN', 'GH_TOKEN'],
    base_url_variables: ['GITHUB_API_URL'],
  },
  {
    name: 'huggingface',
    host: 'router.huggingface.co',
    authentication: { kind: 'header', header: 'authorization', prefix: 'Bearer ' },
    key_variables: ['HF_TOKEN'],
    base_url_variables: ['HF_INFERENCE_ENDPOINT'],
    // Otherwise its client sends the placeholder also with downloads of public models, which the hub then refuses.
    other_variables: { HF_HUB_DISABLE_IMPLICIT_TOKEN: '1' },
    // The prefix by which its client distinguishes a token of the hub from one of another provider.
    placeholder_prefix: 'hf_',
  },
];

export const BUILTIN_SERVICES: readonly CredentialService[] = z.array(CredentialService).parse(ROWS);
