//! Variables that name another upstream than the usual one of a dialect: Azure, OpenRouter, Vertex, Bedrock.

use super::clients::{BasePath, non_blank};

/// A variable that names another upstream than the usual one of its dialect.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherUpstream {
    pub(super) name: &'static str,
    pub(super) base: BasePath,
    /// Variables of the usual upstream. With one of them the dialect has two upstreams, and a gateway has one.
    usual: &'static [&'static str],
}

const OPENAI_USUAL: &[&str] = &["OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_KEY"];
const ANTHROPIC_USUAL: &[&str] =
    &["ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"];
const GEMINI_USUAL: &[&str] =
    &["GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE", "GEMINI_API_KEY", "GOOGLE_API_KEY"];

/// The variable of OpenAI's SDKs for Azure.
pub(super) const AZURE: &str = "AZURE_OPENAI_ENDPOINT";

/// Such variables for OpenAI's dialects, of OpenAI's SDKs and of LiteLLM.
pub(super) const OTHER_OPENAI: &[OtherUpstream] = &[
    OtherUpstream { name: AZURE, base: BasePath::Root, usual: OPENAI_USUAL },
    OtherUpstream { name: "AZURE_API_BASE", base: BasePath::Root, usual: OPENAI_USUAL },
    OtherUpstream { name: "OPENROUTER_API_BASE", base: BasePath::V1, usual: OPENAI_USUAL },
];

/// Such variables for Google, of its SDKs and of Anthropic's for Vertex.
pub(super) const OTHER_GEMINI: &[OtherUpstream] = &[
    OtherUpstream { name: "GOOGLE_VERTEX_BASE_URL", base: BasePath::Root, usual: GEMINI_USUAL },
    OtherUpstream { name: CLAUDE_VERTEX, base: BasePath::V1, usual: GEMINI_USUAL },
];

/// The address of Vertex for Claude.
pub(super) const CLAUDE_VERTEX: &str = "ANTHROPIC_VERTEX_BASE_URL";

/// The address of Bedrock for Claude.
pub(super) const CLAUDE_BEDROCK: &str = "ANTHROPIC_BEDROCK_BASE_URL";

/// Such a variable for Anthropic's dialect, of its SDKs.
pub(super) const OTHER_ANTHROPIC: &[OtherUpstream] =
    &[OtherUpstream { name: CLAUDE_BEDROCK, base: BasePath::Root, usual: ANTHROPIC_USUAL }];

/// The variables that name the only upstream of their dialect, and its address.
pub(super) fn other_upstreams(
    table: &[OtherUpstream],
    env: &impl Fn(&str) -> Option<String>,
) -> (Vec<OtherUpstream>, Option<String>) {
    let is_only =
        |other: &OtherUpstream| other.usual.iter().all(|usual| non_blank(env(usual)).is_none());
    let only = table.iter().filter(|other| is_only(other));
    let mut named: Vec<(OtherUpstream, String)> =
        only.filter_map(|other| Some((*other, non_blank(env(other.name))?))).collect();
    let address = named.first().map(|(_, address)| address.clone());
    named.retain(|(_, other)| Some(other) == address.as_ref());
    (named.into_iter().map(|(other, _)| other).collect(), address)
}

#[cfg(test)]
mod tests {
    use super::super::clients::{ClientUpstreams, GatewayAddress, configure_client};
    use super::*;

    const URL: &str = "http://127.0.0.1:40123";
    const ADDRESS: &str = "http://127.0.0.1:40123/secret";

    #[test]
    fn variables_of_other_upstreams_count_if_they_are_the_only_ones() {
        let check = |env: &[(&str, &str)], expected: &[&str], upstream: Option<&str>| {
            let find = |name: &str| {
                env.iter().find(|(known, _)| *known == name).map(|(_, it)| (*it).to_owned())
            };
            let gateway = GatewayAddress { url: URL.into(), token: "secret".into() };
            let client = configure_client(vec!["x".into()], &gateway, find);
            let others = [OTHER_ANTHROPIC, OTHER_OPENAI, OTHER_GEMINI].concat();
            let is_other = |name: &str| others.iter().any(|other| other.name == name);
            let set = client.variables.iter().filter(|(name, _)| is_other(name));
            let set: Vec<&str> = set.map(|(_, value)| value.as_str()).collect();
            assert_eq!(set, expected, "{env:?}");
            let ClientUpstreams { anthropic, openai, gemini } =
                ClientUpstreams::of(&["x".into()], find);
            assert_eq!(anthropic.or(openai).or(gemini).as_deref(), upstream, "{env:?}");
        };
        let azure = ("AZURE_OPENAI_ENDPOINT", "https://r.openai.azure.com");
        let router = ("OPENROUTER_API_BASE", "https://openrouter.ai/api/v1");
        let vertex = ("GOOGLE_VERTEX_BASE_URL", "https://europe.example");
        check(&[azure], &[ADDRESS], Some(azure.1));
        check(&[azure, ("AZURE_API_BASE", azure.1)], &[ADDRESS, ADDRESS], Some(azure.1));
        check(&[router], &["http://127.0.0.1:40123/secret/v1"], Some(router.1));
        let claude = ("ANTHROPIC_VERTEX_BASE_URL", "https://global.example/v1");
        let bedrock = ("ANTHROPIC_BEDROCK_BASE_URL", "https://bedrock.example");
        check(&[vertex], &[ADDRESS], Some(vertex.1));
        check(&[claude], &["http://127.0.0.1:40123/secret/v1"], Some(claude.1));
        check(&[bedrock], &[ADDRESS], Some(bedrock.1));
        check(&[bedrock, ("ANTHROPIC_API_KEY", "k")], &[], None);
        check(&[azure, router], &[ADDRESS], Some(azure.1));
        // Requests with OpenAI's key must not go to another provider.
        check(&[azure, ("OPENAI_API_KEY", "k")], &[], None);
        check(&[vertex, ("GEMINI_API_KEY", "k")], &[], None);
        let local = ("OPENAI_BASE_URL", "http://ollama/v1");
        check(&[azure, local], &[], Some(local.1));
    }
}
