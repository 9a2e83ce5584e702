// tools/node/index.d.ts
/** Options of a verb by their names on the command line, in camel case; a list repeats one ({input: ["2x8", "n=3"]}). */
export type Options = Record<string, string | number | boolean | (string | number)[] | null | undefined>;
export interface Where { cwd?: string; env?: Record<string, string> }
/** What `torchbolt VERB --json` prints, and `ok`: the exit code was 0. */
export interface Answer { ok: boolean; [name: string]: unknown }

export declare const VERBS: string[];
export declare class TorchboltError extends Error { code: number | null; stderr: string }
export declare function python(environment?: Record<string, string | undefined>): string;
export declare function flags(options?: Options): string[];
export declare function call(verb: string, args?: string[], options?: Options, where?: Where): Promise<Answer>;
export declare function probe(options?: Options, where?: Where): Promise<Answer>;
export declare function benchmark(target: string, options?: Options, where?: Where): Promise<Answer>;
export declare function explain(target: string, options?: Options, where?: Where): Promise<Answer>;
export declare function diagnose(target: string, options?: Options, where?: Where): Promise<Answer>;
export declare function estimate(target: string, options?: Options, where?: Where): Promise<Answer>;
export declare function bisect(target: string, options?: Options, where?: Where): Promise<Answer>;
export declare function cache(action?: string, file?: string, where?: Where): Promise<Answer>;
export declare function run(script: string, args?: string[], where?: Where): Promise<{ ok: boolean; code: number | null; stdout: string; stderr: string }>;
