//! `#[derive(Document)]`: everything that is said of a field of a JSON document, said once, at the field.
//!
//! The doc comment of a field is its meaning in `docs/reference/json.md`. `#[field(...)]` adds
//!
//! - `title = "peak"`: what a column of it is headed with; without one, the field's name without its unit;
//! - `unit = "share"`: what its numbers count, where neither the type nor the name tells;
//! - `null = "the file does not tell"`: why the value is null, with `switch = "--limit"` where a setting would make it known;
//! - `null_with = Self::why_no_limit`: the same from a function of the struct, where it depends on other fields;
//! - `empty = "only recordings have one"`: why a list is empty, where that is worth a line in `unknowns`;
//! - `each`: a list whose elements have reasons of their own, by their places.
//!
//! An `Option` that may be written as null must have a reason: without one the program does not compile.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Expr, Field, Fields, LitStr, Path, Type, parse_macro_input};

/// See the crate's documentation.
#[proc_macro_derive(Document, attributes(field))]
pub fn document(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: &DeriveInput) -> Result<Tokens, Error> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "a document is a struct"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new(input.span(), "a document has named fields"));
    };
    let fields: Vec<Declared<'_>> = fields
        .named
        .iter()
        .map(Declared::of)
        .collect::<Result<Vec<Option<_>>, Error>>()?
        .into_iter()
        .flatten()
        .collect();
    let name = &input.ident;
    let text = name.to_string();
    let shapes = fields.iter().map(Declared::shape);
    let reasons = fields.iter().map(Declared::explain);
    let titles = titles(input, &fields);
    Ok(quote! {
        impl crate::document::Described for #name {
            fn shape() -> crate::document::Shape {
                crate::document::Shape::Object { name: #text, fields: vec![#(#shapes),*] }
            }

            fn explain(&self, place: &crate::document::Place<'_>, unknowns: &mut crate::document::Unknowns) {
                #(#reasons)*
            }
        }

        #titles
    })
}

/// The titles of a struct's columns, each under its field's name, so that a printer cannot ask for one that is not there. Only our own
/// programs print tables.
fn titles(input: &DeriveInput, fields: &[Declared<'_>]) -> Tokens {
    let (name, visibility) = (&input.ident, &input.vis);
    let titles = format_ident!("{name}Titles");
    let names: Vec<_> = fields.iter().map(|field| &field.name).collect();
    let texts = fields.iter().map(|field| &field.title);
    let about = format!("Titles of the fields of [`{name}`].");
    quote! {
        #[cfg(feature = "internals")]
        #[doc = #about]
        #[derive(Clone, Copy, Debug)]
        #[expect(missing_docs, reason = "each is the title of the field of its name")]
        #visibility struct #titles {
            #(pub #names: &'static str),*
        }

        #[cfg(feature = "internals")]
        impl #name {
            /// What columns of its fields are headed with.
            #visibility const TITLES: #titles = #titles { #(#names: #texts),* };
        }
    }
}

/// `#[derive(Cells)]`: the values of a flat document as cells of a table, in the order of its fields.
#[proc_macro_derive(Cells)]
pub fn cells(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let Data::Struct(data) = &input.data else {
        return Error::new(input.span(), "a row is a struct").into_compile_error().into();
    };
    let name = &input.ident;
    let fields = data.fields.iter().filter_map(|field| field.ident.as_ref());
    let row = quote! {
        impl crate::document::Cells for #name {
            fn cells(&self) -> Vec<crate::document::Cell<'_>> {
                vec![#(crate::document::AsCell::cell(&self.#fields)),*]
            }
        }
    };
    row.into()
}

/// A field as it was declared.
struct Declared<'a> {
    name: &'a syn::Ident,
    /// The name in the JSON.
    key: String,
    kind: &'a Type,
    meaning: String,
    title: String,
    unit: Option<String>,
    null: Option<Tokens>,
    /// The reason for a null, where it is always the same.
    null_text: Option<String>,
    empty: Option<Tokens>,
    has_places: bool,
    may_be_absent: bool,
}

impl<'a> Declared<'a> {
    /// Nothing for a field that is not part of the JSON.
    fn of(field: &'a Field) -> Result<Option<Declared<'a>>, Error> {
        let name = field.ident.as_ref().ok_or_else(|| Error::new(field.span(), "a field without a name"))?;
        let serde = Serde::of(&field.attrs)?;
        if serde.is_skipped {
            return Ok(None);
        }
        let key = name.to_string().trim_start_matches("r#").to_owned();
        let mut declared = Declared {
            name,
            title: title_of(&key),
            unit: unit_of(&key),
            key,
            kind: &field.ty,
            meaning: meaning(&field.attrs)?,
            null: None,
            null_text: None,
            empty: None,
            has_places: false,
            may_be_absent: serde.may_be_absent,
        };
        declared.take_attributes(&field.attrs)?;
        if is_option(&field.ty) && declared.null.is_none() && !declared.may_be_absent {
            let text = "a value that may be null needs its reason: #[field(null = \"...\")]";
            return Err(Error::new(field.span(), text));
        }
        if declared.meaning.is_empty() {
            return Err(Error::new(field.span(), "a field of a document needs its meaning: a doc comment"));
        }
        Ok(Some(declared))
    }

    fn take_attributes(&mut self, attributes: &[Attribute]) -> Result<(), Error> {
        let (mut null, mut empty, mut switch, mut with): (Option<LitStr>, Option<LitStr>, _, Option<Path>) =
            (None, None, quote!(None), None);
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("field")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("each") {
                    self.has_places = true;
                } else if meta.path.is_ident("title") {
                    self.title = meta.value()?.parse::<LitStr>()?.value();
                } else if meta.path.is_ident("unit") {
                    self.unit = Some(meta.value()?.parse::<LitStr>()?.value());
                } else if meta.path.is_ident("null") {
                    null = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("empty") {
                    empty = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("null_with") {
                    with = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("switch") {
                    let text: LitStr = meta.value()?.parse()?;
                    switch = quote!(Some(#text));
                } else {
                    return Err(meta.error("expected title, unit, null, null_with, empty, switch or each"));
                }
                Ok(())
            })?;
        }
        let told = |text: LitStr| quote!(crate::document::Reason::new(#text, #switch));
        self.empty = empty.map(told);
        self.null_text = null.as_ref().map(LitStr::value);
        self.null = match (null, with) {
            (Some(text), None) => Some(told(text)),
            (None, Some(function)) => Some(quote!(#function(self))),
            (None, None) => None,
            (Some(text), Some(_)) => {
                return Err(Error::new(text.span(), "null and null_with say the same twice"));
            }
        };
        Ok(())
    }

    fn shape(&self) -> Tokens {
        let Declared { key, title, meaning, kind, may_be_absent, .. } = self;
        let text = |text: &Option<String>| match text {
            Some(text) => quote!(Some(#text)),
            None => quote!(None),
        };
        let (unit, null) = (text(&self.unit), text(&self.null_text));
        quote! {
            crate::document::FieldShape {
                name: #key,
                title: #title,
                unit: #unit,
                meaning: #meaning,
                null: #null,
                may_be_absent: #may_be_absent,
                shape: <#kind as crate::document::Described>::shape(),
            }
        }
    }

    fn explain(&self) -> Tokens {
        let Declared { name, key, .. } = self;
        let null = self.null.as_ref().map(|reason| {
            quote!(crate::document::Described::explain_null(&self.#name, &place, &|| #reason, unknowns);)
        });
        let empty = self.empty.as_ref().map(|reason| {
            quote! {
                if self.#name.is_empty() {
                    unknowns.add(&place, #reason);
                }
            }
        });
        let has_places = self.has_places;
        quote! {
            {
                let place = place.field(#key, #has_places);
                #null
                #empty
                crate::document::Described::explain(&self.#name, &place, unknowns);
            }
        }
    }
}

/// What serde is told of a field.
struct Serde {
    is_skipped: bool,
    may_be_absent: bool,
}

impl Serde {
    fn of(attributes: &[Attribute]) -> Result<Serde, Error> {
        let mut serde = Serde { is_skipped: false, may_be_absent: false };
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
            attribute.parse_nested_meta(|meta| {
                serde.is_skipped |= meta.path.is_ident("skip");
                serde.may_be_absent |= meta.path.is_ident("skip_serializing_if");
                if meta.input.peek(syn::Token![=]) {
                    meta.value()?.parse::<Expr>()?;
                }
                Ok(())
            })?;
        }
        Ok(serde)
    }
}

/// The doc comment, in one line.
fn meaning(attributes: &[Attribute]) -> Result<String, Error> {
    let mut lines = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        let value = &attribute.meta.require_name_value()?.value;
        if let Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = value {
            lines.push(text.value().trim().to_owned());
        }
    }
    Ok(lines.join(" ").trim_end_matches('.').to_owned())
}

/// The name as words, without its unit.
fn title_of(name: &str) -> String {
    let bare = name.strip_suffix("_bytes").or_else(|| name.strip_suffix("_ns")).unwrap_or(name);
    bare.replace('_', " ")
}

/// The unit that a name tells.
fn unit_of(name: &str) -> Option<String> {
    if name == "bytes" || name.ends_with("_bytes") {
        return Some("bytes".to_owned());
    }
    name.ends_with("_ns").then(|| "ns".to_owned())
}

fn is_option(kind: &Type) -> bool {
    let Type::Path(path) = kind else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == "Option")
}
